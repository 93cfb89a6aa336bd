"""What a Gymnasium class may offer beyond Gymnasium's own interface. All of it is optional.

A class gains a capability by having the member; there is nothing to inherit or register. A
class without an `EnvironmentSource` is asked for its tasks and its prompt by
`longhaul_envs.asked`, in a process of its own.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.types import Split, Task

__all__ = ["HasExpert", "HasPrompt", "ListsTasks", "SharesProcess"]


@runtime_checkable
class ListsTasks(Protocol):
    """Has its own task lists, under the options that the instance was made with."""

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        """The first `limit` tasks of `split`, or all of them, in a fixed order."""
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
class SharesProcess(Protocol):
    """Several of its episodes may be played in one process at once, instead of in one each.

    For environments whose instances share no state that changes, and whose calls take
    milliseconds: those of one process are made one after the other.
    """

    episodes_per_process: ClassVar[int]
    """Most episodes at once, from 1 to 65,536. Declared on the class; without it, 1."""
