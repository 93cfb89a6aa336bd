"""What a Gymnasium class may offer beyond Gymnasium's own interface. All of it is optional.

A class gains a capability by having the member; there is nothing to inherit or register. A
class without an `EnvironmentSource` is asked for its tasks and its prompt by
`longhaul_envs.inspected`, in a process of its own.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from longhaul_core.environment import Determinism, EnvironmentPrompt
from longhaul_core.types import Split, Task

__all__ = [
    "Draws",
    "ExpertMayLose",
    "HasExpert",
    "HasPrompt",
    "ListsTasks",
    "NamesGoalParts",
    "Prepares",
    "Repeats",
    "SharesProcess",
    "TellsStarts",
]


@runtime_checkable
class ListsTasks(Protocol):
    """Has its own task lists, under the options that the instance was made with."""

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        """The first `limit` tasks of `split`, or all of them, in a fixed order."""
        ...


@runtime_checkable
class TellsStarts(Protocol):
    """Has no task lists of its own, and first observations that cost much to make."""

    def start_of(self, seed: int) -> str:
        """What tells the start of a seed from all that differ from it; an episode ends by it."""
        ...


@runtime_checkable
class HasPrompt(Protocol):
    """Introduces itself."""

    @property
    def prompt(self) -> EnvironmentPrompt:
        """The introduction, under the options that the instance was made with."""
        ...


@runtime_checkable
class HasExpert(Protocol):
    """Can say what an expert would do."""

    def expert_action(self) -> str | None:
        """An action on a way to success from here; None if there is no such way.

        It may use what the agent cannot see. It is an admissible action wherever the
        environment names those, and it draws no random numbers.
        """
        ...


@runtime_checkable
class ExpertMayLose(Protocol):
    """Has an expert that plays as well as can be and still loses tasks: chance decides them."""

    expert_may_lose: ClassVar[str]
    """Why, in words. Declared on the class; without it, an expert solves what it begins."""


@runtime_checkable
class NamesGoalParts(Protocol):
    """Can take a part of its goal for another, so that a check sees whether that pays less."""

    def goal_parts(self) -> Sequence[str]:
        """The parts of this episode's goal, each by a name, e.g. `product` and `option color`."""
        ...

    def mistaken_action(self, part: str) -> str | None:
        """What an expert would do who takes `part` for another, and all else for what it is.

        It follows from the goal and from what was done, never from what the reward would say.
        None at its end, and at the start of a task for which it knows no other.
        """
        ...


@runtime_checkable
class Draws(Protocol):
    """Draws its state for people: Gymnasium's `rgb_array` without the choice of a mode.

    The class declares `metadata = {"render_modes": ["rgb_array"]}` and `render_mode = "rgb_array"`.
    """

    render_mode: str | None

    def render(self) -> NDArray[np.uint8]:
        """The state as an image of shape (height, width, 3), red, green and blue from 0 to 255.

        It may show what the agent cannot see, changes nothing and draws no random numbers.
        """
        ...


@runtime_checkable
class Prepares(Protocol):
    """Can do a part of its next reset beforehand, the part that is the same for every task."""

    def prepare(self) -> None:
        """Begin with it, and return soon: other episodes of the process wait meanwhile.

        Called before the first episode or when one has ended, also in its middle; the next call is
        `reset` or `close`. Nothing of an episode may depend on whether this was called.
        """
        ...


@runtime_checkable
class Repeats(Protocol):
    """Declares what of an episode the same task repeats, where that is not the whole episode."""

    determinism: ClassVar[Determinism]
    """Declared on the class; without it, `Determinism.EXACT`."""


@runtime_checkable
class SharesProcess(Protocol):
    """Several of its episodes may be played in one process at once, instead of in one each.

    For environments whose instances share no state that changes, and whose calls take
    milliseconds: those of one process are made one after the other.
    """

    episodes_per_process: ClassVar[int]
    """Most episodes at once, from 1 to 65,536. Declared on the class; without it, 1."""
