"""What the episode loop needs from a memory, and what a memory may ask of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from longhaul_core.policy import Shortenable
from longhaul_core.types import Call, CreditedBy, Message, Observation, Task

__all__ = ["Complete", "Memory", "MemoryContext", "RecallingMemory"]


class Complete(Protocol):
    """Asks the policy something of the memory's own."""

    async def __call__(
        self,
        prompt: Sequence[Message] | Shortenable,
        *,
        purpose: str = "remember",
        trained: bool = True,
        credit_share: float = 1.0,
        credited_by: CreditedBy = CreditedBy.NEXT_STEP,
        max_reply_tokens: int | None = None,
    ) -> Call:
        """The reply, recorded as a call of the step that is being taken in.

        Args:
            prompt: What is asked.
            purpose: What the call is for, in a word, and not `act`, which is the agent's: by it the
                store tells calls apart, and `loss.purposes` gives them a share of the loss.
            trained: Whether the reply's tokens are in the loss.
            credit_share: What the advantage is multiplied by for these tokens.
            credited_by: Which step's advantage that is: the step that is being taken in was paid
                before the reply was written, and the next one reads it.
            max_reply_tokens: Longest reply, at most the agent's own limit, which None stands for.

        Raises:
            LimitReached: The episode's limits leave no room for the call. Let it pass: the episode
                ends, truncated.
            EpisodeError: The policy or the renderer failed. Let it pass.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """What a memory may use while it takes in an exchange."""

    task: Task
    complete: Complete


class Memory(Protocol):
    """Decides what of an episode's past goes into the next prompt. One per episode.

    The loop calls `compose`, lets the policy act, and awaits `write` once the environment has
    answered, unless nothing will be composed any more. The prompt of a step is composed by this
    object alone. `compose` is called in threads, one call after the other.
    """

    async def write(
        self, *, observation: Observation, reply: str, action: str, context: MemoryContext
    ) -> None:
        """Take in one finished exchange.

        It may ask the policy (`context.complete`, under the policy's deadline); for whatever else
        it awaits it sets deadlines of its own.
        """
        ...

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """Messages of the prompt for `observation`. Changes nothing, and waits for nothing.

        Args:
            observation: What the policy is to act on.
            drop: Leave out this many of the oldest remembered exchanges, because the
                prompt was too long for the model; 0 to `num_remembered`. Dropping
                more never makes the prompt longer.
        """
        ...

    @property
    def num_remembered(self) -> int:
        """Exchanges that the next prompt would show: how far `drop` can go."""
        ...


@runtime_checkable
class RecallingMemory(Protocol):
    """What a memory has that chooses exchanges from before the last ones, and says which.

    It is called where `compose` is.
    """

    def recalled(self, observation: Observation, *, drop: int = 0) -> tuple[int, ...]:
        """Those that `compose` shows for the same arguments: 0-based, in the order of `write`."""
        ...
