"""Where tasks come from."""

from collections.abc import Sequence
from typing import Protocol

from longhaul_core.types import Split, Task

__all__ = ["TaskSource"]


class TaskSource(Protocol):
    """Lists the tasks of an environment, in the same order on every machine."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """Every task of `split`; the splits share no content."""
        ...
