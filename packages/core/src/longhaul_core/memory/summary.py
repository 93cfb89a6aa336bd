"""A summary of what is long past, written by the model itself, and the last exchanges.

The prompt's length is bounded by the summary's and the exchanges that are kept, however long the
episode is, and what was seen early on is not forgotten as in a window.
"""

from longhaul_core.actions import split_thinking
from longhaul_core.errors import ConfigError
from longhaul_core.memory.base import MemoryContext
from longhaul_core.memory.template import PromptTemplate
from longhaul_core.policy import Shortenable
from longhaul_core.types import Message, Observation

__all__ = ["SummaryMemory"]


class SummaryMemory:
    """Keep the last exchanges, and have the model summarise those before them.

    Between `size` and `size + every - 1` exchanges are shown as they were. When there is one more,
    the oldest `every` go into the summary, together with the summary so far; what the reply thinks
    aloud is left out of it. Where a reply leaves no summary, the one before stays.
    """

    def __init__(
        self,
        *,
        size: int,
        every: int,
        template: PromptTemplate,
        max_summary_tokens: int | None = None,
        trained: bool = False,
    ) -> None:
        """A memory of nothing.

        Args:
            size: Exchanges that are always shown as they were, at least 1.
            every: Exchanges that are summarised at a time, at least 1.
            template: How prompts are laid out, and how a summary is requested.
            max_summary_tokens: Longest summary; None stands for the agent's longest reply.
            trained: Whether the tokens of summaries are in the loss.

        Raises:
            ConfigError: A number is below 1.
        """
        for name, value in (
            ("size", size),
            ("every", every),
            ("max_summary_tokens", max_summary_tokens),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"a summary memory needs {name} of at least 1, got {value}")
        self._size = size
        self._every = every
        self._template = template
        self._max_summary_tokens = max_summary_tokens
        self._trained = trained
        self._summary = ""
        self._lines: list[str] = []

    @property
    def num_remembered(self) -> int:
        """Exchanges that are shown as they were; the summary is not one of them, and stays."""
        return len(self._lines)

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """See `Memory.write`."""
        self._lines.append(self._template.past_line(observation, action))
        if len(self._lines) < self._size + self._every:
            return
        past = self._lines[: self._every]
        call = await context.complete(
            Shortenable(
                compose=lambda drop: self._template.summary_messages(
                    past[drop:], summary=self._summary
                ),
                num_droppable=lambda: len(past),
            ),
            trained=self._trained,
            max_reply_tokens=self._max_summary_tokens,
        )
        _, summary = split_thinking(call.reply)
        self._summary = summary.strip() or self._summary
        del self._lines[: self._every]

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """See `Memory.compose`.

        Raises:
            ValueError: If `drop` is negative or more than is remembered.
        """
        if not 0 <= drop <= len(self._lines):
            raise ValueError(f"drop must lie in [0, {len(self._lines)}], got {drop}")
        asked = self._template.user_message(observation, self._lines[drop:], summary=self._summary)
        return (*self._template.system_messages(), asked)
