"""A hosted model as what an episode loop asks."""

from collections.abc import Sequence

from longhaul_core.errors import PolicyFailure
from longhaul_core.policy import HostedReply, ReadReply, Sampling
from longhaul_core.types import Message, Tool
from longhaul_trainer.gateway.exchange import ApiError, ChatRequest
from longhaul_trainer.gateway.upstream import Upstream

__all__ = ["UpstreamPolicy"]


class UpstreamPolicy:
    """Asks an upstream in the place of an engine. A `HostedPolicy`."""

    def __init__(self, upstream: Upstream, *, name: str) -> None:
        """A policy of many episodes.

        Args:
            upstream: Replies.
            name: What its calls are stored under.
        """
        self._upstream = upstream
        self._name = name

    async def reply(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[Tool] = ()
    ) -> HostedReply:
        """See `HostedPolicy.reply`.

        Raises:
            PolicyFailure: The upstream gave no reply.
        """
        request = ChatRequest(
            model=self._name,
            messages=tuple(messages),
            tools=tuple(tools),
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            # Vendors refuse both at once for some models, and 1 is what they all draw with.
            top_p=None if sampling.top_p == 1 else sampling.top_p,
        )
        try:
            answer = await self._upstream.answer(request, on_delta=None)
        except ApiError as error:
            raise PolicyFailure(error.message) from error
        choice = answer.reply.choices[0]
        return HostedReply(
            read=ReadReply(
                text=choice.text, reasoning=choice.reasoning, tool_calls=choice.tool_calls
            ),
            model=self._name,
            finish_reason=choice.finish_reason,
            cost_usd=answer.cost_usd,
            queue_seconds=answer.queue_seconds,
        )
