"""The last exchanges, and a bounded number of those before them: which ones, a memory chooses.

What was seen early on is shown again without a model's summary, as it was. The prompt's length is
bounded, however long the episode is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from longhaul_core.errors import ConfigError
from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["EarlierExchanges"]


class EarlierExchanges(ABC):
    """A memory of the last `size` exchanges and at most `max_earlier` earlier ones."""

    def __init__(self, *, size: int, max_earlier: int, template: PromptTemplate) -> None:
        """A memory of nothing.

        Args:
            size: Last exchanges that are always shown, at least 1.
            max_earlier: Most exchanges before those that are shown too, at least 1.
            template: How prompts are laid out.

        Raises:
            ConfigError: A number is below 1.
        """
        for name, value in (("size", size), ("max_earlier", max_earlier)):
            if value < 1:
                raise ConfigError(f"this memory needs {name} of at least 1, got {value}")
        self._size = size
        self._max_earlier = max_earlier
        self._template = template
        self._lines: list[str] = []

    @property
    def num_remembered(self) -> int:
        """Exchanges that a prompt shows: `size + max_earlier` at most."""
        num_earlier = min(self._max_earlier, len(self._candidates()))
        return num_earlier + min(self._size, len(self._lines))

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        self._lines.append(self._template.past_line(observation, action))

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """See `Memory.compose`.

        Raises:
            ValueError: If `drop` is negative or more than is remembered.
        """
        if not 0 <= drop <= self.num_remembered:
            raise ValueError(f"drop must lie in [0, {self.num_remembered}], got {drop}")
        recalled = self.recalled(observation, drop=drop)
        num_last = self.num_remembered - drop - len(recalled)
        asked = self._template.user_message(
            observation,
            self._lines[len(self._lines) - num_last :],
            earlier=[self._lines[place] for place in recalled],
        )
        return (*self._template.system_messages(), asked)

    def recalled(self, observation: Observation, *, drop: int = 0) -> tuple[int, ...]:
        """See `RecallingMemory.recalled`."""
        return tuple(self._chosen(self._candidates(), observation)[drop:])

    @property
    def _num_before(self) -> int:
        """Exchanges before the last `size`."""
        return max(0, len(self._lines) - self._size)

    @abstractmethod
    def _candidates(self) -> Sequence[int]:
        """Which exchanges before the last `size` may be shown, by their 0-based places, rising."""

    def _chosen(self, candidates: Sequence[int], observation: Observation) -> Sequence[int]:
        """Which of them are, rising: as many as `max_earlier` allows; here the newest."""
        return candidates[-self._max_earlier :]
