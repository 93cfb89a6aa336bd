"""Nothing: the policy sees the observation alone."""

from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["NoMemory"]


class NoMemory:
    """Forget everything. Right where the observation tells the whole state."""

    def __init__(self, *, template: PromptTemplate) -> None:
        self._template = template

    @property
    def num_remembered(self) -> int:
        """Always 0."""
        return 0

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """See `Memory.compose`.

        Raises:
            ValueError: If `drop` is not 0.
        """
        if drop:
            raise ValueError(f"there is nothing to drop, asked to drop {drop}")
        return (*self._template.system_messages(), self._template.user_message(observation))
