"""Replies of a policy, within an episode's limits on tokens and time."""

import math
import time
from collections.abc import Callable, Sequence

from longhaul_core.errors import PolicyFailure, PolicyTimeout, TokensSpent
from longhaul_core.policy import (
    Completion,
    HostedPolicy,
    HostedReply,
    Policy,
    Prompt,
    Sampling,
    StreamingPolicy,
    offers,
)
from longhaul_core.rollout.deadline import deadline
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.responder import Responder
from longhaul_core.types import FinishReason, Message, SampledTokens, Tool

__all__ = ["Replies", "sampled_tokens"]


class Replies:
    """Has policies reply, and counts the tokens of one episode. Replies may overlap."""

    def __init__(self, limits: EpisodeLimits, *, episode_id: str) -> None:
        """No token is spent yet."""
        self._limits = limits
        self._episode_id = episode_id
        self._num_tokens = 0

    async def get(
        self,
        responder: Responder,
        prompt: Prompt,
        sampling: Sampling,
        *,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> tuple[Completion, float]:
        """A reply, and how many seconds it took.

        Args:
            responder: Whose policy replies.
            prompt: With its tokens.
            sampling: How to draw the reply.
            on_tokens: Called with the reply's tokens as they are written; all at once at the end
                where the policy does not stream.

        Raises:
            TokensSpent: The prompt is longer than it may be, or the episode's tokens do not suffice
                for it and a longest reply.
            PolicyFailure: The policy failed, or gave no usable reply.
            PolicyTimeout: It did not answer within its deadline.
        """
        self._require_room(prompt, sampling.max_tokens)
        # A call that overlaps with this one must not spend the same tokens.
        reserved = len(prompt.tokens) + sampling.max_tokens
        self._num_tokens += reserved
        began = time.perf_counter()
        try:
            completion = await self._sample(responder, prompt, sampling, on_tokens)
            self._num_tokens += len(prompt.tokens) + len(completion.action_tokens)
        finally:
            self._num_tokens -= reserved  # a call that failed, or was given up, is no part of it
        return completion, time.perf_counter() - began

    async def of_hosted(
        self,
        policy: HostedPolicy,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        tools: Sequence[Tool],
    ) -> tuple[HostedReply, float]:
        """A reply of a hosted model, and how many seconds it took; its tokens are not counted.

        Raises:
            PolicyFailure: It failed.
            PolicyTimeout: It did not answer within its deadline.
        """
        limit, began = self._limits.policy_deadline_seconds, time.perf_counter()
        async with deadline(limit, "policy.reply", failure=PolicyFailure, late=PolicyTimeout):
            reply = await policy.reply(messages, sampling, tools=tools)
        return reply, time.perf_counter() - began

    async def _sample(
        self,
        responder: Responder,
        prompt: Prompt,
        sampling: Sampling,
        on_tokens: Callable[[Sequence[int]], None] | None,
    ) -> Completion:
        limit, policy = self._limits.policy_deadline_seconds, responder.policy
        if not offers(policy, Policy):
            raise TypeError("a hosted model takes no prompt of tokens")
        async with deadline(limit, "policy.act", failure=PolicyFailure, late=PolicyTimeout):
            if on_tokens is not None and offers(policy, StreamingPolicy):
                completion = await policy.stream(
                    prompt, sampling, episode_id=self._episode_id, on_tokens=on_tokens
                )
                on_tokens = None
            else:
                completion = await policy.act(prompt, sampling, episode_id=self._episode_id)
            _check(completion)
        if on_tokens is not None:
            on_tokens(completion.action_tokens)
        return completion

    def _require_room(self, prompt: Prompt, longest_reply: int) -> None:
        """Refuse a call that the limits on tokens do not let begin."""
        num_prompt, limit = len(prompt.tokens), self._limits.max_prompt_tokens
        if num_prompt > limit:
            raise TokensSpent(f"prompt of {num_prompt} tokens exceeds max_prompt_tokens = {limit}")
        budget = self._limits.max_episode_tokens
        if budget is not None and self._num_tokens + num_prompt + longest_reply > budget:
            raise TokensSpent(
                f"prompt of {num_prompt} and reply of up to {longest_reply} tokens, after "
                f"{self._num_tokens} of the episode's calls before, exceed max_episode_tokens = "
                f"{budget}"
            )


def sampled_tokens(prompt: Prompt, completion: Completion) -> SampledTokens:
    """What a call's record keeps of its tokens."""
    return SampledTokens(
        prompt_tokens=prompt.tokens,
        action_tokens=completion.action_tokens,
        behavior_logprobs=completion.behavior_logprobs,
        policy_version=completion.policy_version,
    )


def _check(completion: Completion) -> None:
    """Refuse a reply that could not be trained on."""
    num_tokens, logprobs = len(completion.action_tokens), completion.behavior_logprobs
    if completion.finish_reason is FinishReason.ABORTED:
        raise ValueError("the reply was aborted")
    if not num_tokens:
        raise ValueError("the reply has no tokens")
    if logprobs is None:
        return
    if num_tokens != len(logprobs):
        raise ValueError(f"{num_tokens} tokens but {len(logprobs)} logprobs")
    if not all(map(math.isfinite, logprobs)):
        raise ValueError("a logprob is not finite")
