"""How a prompt is laid out, whatever a memory puts in it.

The defaults are short on purpose: a small model on a CPU is the default reader, and
every token of a prompt is paid for at every step of every episode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from longhaul_core.types import Message, Observation

__all__ = ["PastView", "PromptTemplate"]


class PastView(StrEnum):
    """What a line about the past says."""

    EXCHANGES = "exchanges"
    """The observation and the action taken on it."""
    ACTIONS = "actions"
    """The action alone, for environments whose observation tells the whole state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """The fixed parts of every prompt of an environment."""

    system: str = ""
    """The system message; none is sent if it is empty."""
    instruction: str = ""
    """Last line of the user message: how to answer, see `actions.default_instruction`."""
    list_actions: bool = True
    """Whether admissible actions are listed where the environment knows them."""
    past: PastView = PastView.EXCHANGES
    """What `WindowMemory` shows of an earlier exchange."""
    reply_prefix: str = ""
    """What the renderer writes of every reply beforehand. `FullHistory` puts it back in
    front of earlier replies, so that a later prompt repeats what the engine saw."""

    def system_messages(self) -> tuple[Message, ...]:
        """The system message, or nothing."""
        return (Message(role="system", content=self.system),) if self.system else ()

    def user_message(self, observation: Observation, past: Sequence[str] = ()) -> Message:
        """The message that asks for the next action.

        Args:
            observation: What the policy is to act on.
            past: Finished exchanges as `past_line` writes them, oldest first.
        """
        parts = ["Past:", *past, "Now:"] if past else []
        parts.append(observation.text)
        if self.list_actions and observation.admissible_actions is not None:
            parts.append("Actions: " + " | ".join(observation.admissible_actions))
        if self.instruction:
            parts.append(self.instruction)
        return Message(role="user", content="\n".join(parts))

    def past_line(self, observation: Observation, action: str) -> str:
        """One finished exchange, as a later prompt shows it."""
        if self.past is PastView.ACTIONS:
            return f"> {action}"
        return f"{observation.text}\n> {action}"
