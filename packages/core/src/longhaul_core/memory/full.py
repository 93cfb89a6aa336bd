"""The whole episode as a chat.

Earlier replies are repeated verbatim, the reply prefix included, so that where the
chat template allows it a later prompt extends the earlier one token by token, and
the engine's prefix cache and merged training rows can make use of that.
"""

from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.types import Message, Observation

__all__ = ["FullHistory"]


class FullHistory:
    """Keep every exchange. The prompt grows with each step."""

    def __init__(self, *, template: PromptTemplate) -> None:
        self._template = template
        self._exchanges: list[tuple[Message, Message]] = []

    @property
    def num_remembered(self) -> int:
        """Exchanges so far."""
        return len(self._exchanges)

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        asked = self._template.user_message(observation)
        answered = Message(role="assistant", content=self._template.reply_prefix + reply)
        self._exchanges.append((asked, answered))

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """See `Memory.compose`.

        Raises:
            ValueError: If `drop` is negative or more than is remembered.
        """
        if not 0 <= drop <= len(self._exchanges):
            raise ValueError(f"drop must lie in [0, {len(self._exchanges)}], got {drop}")
        chat = [message for exchange in self._exchanges[drop:] for message in exchange]
        return (
            *self._template.system_messages(),
            *chat,
            self._template.user_message(observation),
        )
