"""The spaces that a text environment has, and what Gymnasium needs to sample them.

Gymnasium's own `Text` counts a character outside its charset as outside the space, and keeps a
table of the charset; here any character of Unicode is in it. Actions are not held to the space:
a model may write anything, and an environment answers what it does not understand.
"""

import string
from typing import Any

from gymnasium.spaces import Text

from longhaul_core.text import well_formed

__all__ = ["MAX_ACTION_CHARACTERS", "MAX_OBSERVATION_CHARACTERS", "text_space"]

MAX_ACTION_CHARACTERS = 256
MAX_OBSERVATION_CHARACTERS = 1_000_000
"""As a run's `environment.max_observation_characters`, which fails the episode of a longer one."""

_SAMPLED_CHARACTERS = 256
"""Longest text that `sample` draws."""


class _UnicodeText(Text):
    """Texts of up to `max_length` characters, any but halves of surrogate pairs, the empty one too.

    It samples short texts of printable ASCII: what a sample is for needs no more.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__(min_length=0, max_length=max_length, charset=string.printable)

    def sample(self, mask: Any = None, probability: Any = None) -> str:  # noqa: ANN401  Gymnasium's
        """A text of at most 256 characters of printable ASCII."""
        short = Text(
            min_length=0,
            max_length=min(self.max_length, _SAMPLED_CHARACTERS),
            charset=string.printable,
            seed=self.np_random,
        )
        return short.sample(mask, probability)

    def contains(self, x: object) -> bool:
        """Whether `x` is such a text."""
        return isinstance(x, str) and len(x) <= self.max_length and well_formed(x) == x

    def __eq__(self, other: object) -> bool:
        """Equal limits."""
        return isinstance(other, _UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # pyright: ignore[reportAssignmentType]  as Gymnasium's spaces

    def __repr__(self) -> str:
        """For messages."""
        return f"text_space({self.max_length})"


def text_space(max_characters: int = MAX_OBSERVATION_CHARACTERS) -> Text:
    """The space of all texts of up to `max_characters`, at least 1, the empty one included.

    Any character of Unicode is in it, line breaks and control characters too; halves of surrogate
    pairs are none, since such text cannot be written as UTF-8.
    """
    return _UnicodeText(max_characters)
