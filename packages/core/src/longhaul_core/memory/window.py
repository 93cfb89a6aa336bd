"""The last few exchanges, inside one user message.

The prompt's length is bounded by the window, however long the episode is: the
step-independent prompt that long horizons need.
"""

from collections import deque

from longhaul_core.errors import ConfigError
from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["WindowMemory"]


class WindowMemory:
    """Keep the most recent `size` exchanges and forget the rest."""

    def __init__(self, *, size: int, template: PromptTemplate) -> None:
        if size < 1:
            raise ConfigError(f"a window memory needs a size of at least 1, got {size}")
        self._template = template
        self._exchanges: deque[tuple[Observation, str]] = deque(maxlen=size)
        self._num_steps = 0

    @property
    def num_remembered(self) -> int:
        """Exchanges in the window: `size` at most."""
        return len(self._exchanges)

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        self._exchanges.append((observation, action))
        self._num_steps += 1

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """See `Memory.compose`.

        Raises:
            ValueError: If `drop` is negative or more than is remembered.
        """
        if not 0 <= drop <= len(self._exchanges):
            raise ValueError(f"drop must lie in [0, {len(self._exchanges)}], got {drop}")
        past = list(self._exchanges)[drop:]
        asked = self._template.window_message(observation, past, num_steps=self._num_steps)
        return (*self._template.system_messages(), asked)
