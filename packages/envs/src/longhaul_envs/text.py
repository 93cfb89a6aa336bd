"""The two spaces that a text environment has, and what Gymnasium needs to sample them.

`gymnasium.spaces.Text` counts characters outside its charset as outside the space, so
observations stay within printable ASCII. Actions are not held to the space: a model may
write anything, and an environment answers what it does not understand.
"""

import string

from gymnasium.spaces import Text

__all__ = ["MAX_ACTION_CHARACTERS", "MAX_OBSERVATION_CHARACTERS", "text_space"]

MAX_ACTION_CHARACTERS = 256
MAX_OBSERVATION_CHARACTERS = 8192


def text_space(max_characters: int = MAX_OBSERVATION_CHARACTERS) -> Text:
    """The space of printable ASCII texts of up to `max_characters`, the empty one included."""
    return Text(min_length=0, max_length=max_characters, charset=string.printable)
