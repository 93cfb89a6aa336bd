"""What the episode loop needs from a memory."""

from typing import Protocol

from longhaul_core.types import Message, Observation


class Memory(Protocol):
    """Decides what of an episode's past goes into the next prompt. One per episode.

    The loop calls `compose`, lets the policy act, and calls `write` once the
    environment has answered. The prompt of a step is composed by this object alone. Calls may come
    from different threads, one after the other.
    """

    def write(self, *, observation: Observation, reply: str, action: str) -> None:
        """Take in one finished exchange."""
        ...

    def compose(self, observation: Observation, *, drop: int = 0) -> tuple[Message, ...]:
        """Messages of the prompt for `observation`.

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
