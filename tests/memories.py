"""Exchanges for memories that are tested by themselves."""

import asyncio
from collections.abc import Sequence

from fakes import make_task
from longhaul_core.memory import Memory, MemoryContext
from longhaul_core.policy import Shortenable
from longhaul_core.types import Call, CreditedBy, Message, Observation


class Model:
    """Replies to what a memory asks it with numbered summaries, or with what it is given."""

    def __init__(self, replies: Sequence[str] = ()) -> None:
        self._replies = list(replies)
        self.prompts: list[tuple[Message, ...]] = []
        self.trained: list[bool] = []
        self.longest: list[int | None] = []

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
        messages = prompt.compose(0) if isinstance(prompt, Shortenable) else tuple(prompt)
        self.prompts.append(messages)
        self.trained.append(trained)
        self.longest.append(max_reply_tokens)
        number = len(self.prompts)
        reply = self._replies[number - 1] if self._replies else f"summary {number:03}"
        return Call(messages=messages, reply=reply, sampled=None, trained=False)


def taken_in(
    memory: Memory,
    observation: Observation,
    *,
    reply: str = "",
    action: str = "",
    model: Model | None = None,
) -> None:
    """Let the memory take in one exchange."""
    context = MemoryContext(task=make_task(), complete=model or Model())
    asyncio.run(memory.write(observation=observation, reply=reply, action=action, context=context))
