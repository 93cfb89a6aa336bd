"""The last exchanges, and those before them in which something new was seen."""

from bisect import bisect_left
from collections.abc import Sequence

from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.earlier import EarlierExchanges
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.types import Observation

__all__ = ["KeyEventsMemory"]


class KeyEventsMemory(EarlierExchanges):
    """Keep the last `size` exchanges, and the newest `max_earlier` key events before them.

    An exchange is a key event if what it was shown (text, pictures, and admissible actions in
    whatever order) was shown by none before it in the episode: the first one, and each that an
    action had brought something new to. What repeats, as where an agent goes back and forth or does
    what has no effect, pushes nothing out. Where every observation differs, as one with a count of
    steps in it does, each exchange is a key event, and this is a window of `size + max_earlier`.
    """

    def __init__(self, *, size: int, max_earlier: int, template: PromptTemplate) -> None:
        """See `EarlierExchanges`."""
        super().__init__(size=size, max_earlier=max_earlier, template=template)
        self._shown: set[tuple[object, ...]] = set()
        self._events: list[int] = []

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        actions = observation.admissible_actions
        shown = (
            observation.text,
            observation.pictures,
            None if actions is None else frozenset(actions),
        )
        if shown not in self._shown:
            self._shown.add(shown)
            self._events.append(len(self._lines))
        await super().write(observation=observation, reply=reply, action=action, context=context)

    def _candidates(self) -> Sequence[int]:
        return self._events[: bisect_left(self._events, self._num_before)]
