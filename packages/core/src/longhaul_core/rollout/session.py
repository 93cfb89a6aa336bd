"""The record of one episode, kept while somebody plays it.

A session is driven from outside: `run_episode` plays an environment; a gateway answers the calls
of a program that plays by itself, and learns of its reward later; a person acts without a call.
The driver reports what is observed, done and paid, asks for calls, and ends the episode. The
session renders and samples within the episode's limits, and keeps every step and call.

A step is open from its observation to the next one. A call belongs to the step that is open when
it is requested; so the calls of a memory, which follow the action, belong to the step just played.
All methods are called on one event loop; calls may overlap.
"""

import asyncio
import logging
import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from longhaul_core.errors import (
    MAX_MESSAGE_CHARACTERS,
    EnvironmentFailure,
    EpisodeError,
    HorizonReached,
    MemoryFailure,
    PolicyFailure,
    PolicyTimeout,
    RendererFailure,
    TokensSpent,
    attributed_to,
    message_of,
)
from longhaul_core.policy import Completion, Prompt, Renderer, Sampling, Shortenable
from longhaul_core.rollout.agent import Responder
from longhaul_core.rollout.deadline import deadline
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.seeds import call_seed, step_seed
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.text import well_formed
from longhaul_core.types import (
    Call,
    FailedEpisode,
    FinishReason,
    Message,
    Observation,
    SampledTokens,
    Step,
    StopReason,
    Task,
    Trajectory,
)

__all__ = ["EpisodeSession"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Draft:
    """A step that may still change."""

    index: int
    observation: Observation
    calls: dict[int, Call] = field(default_factory=dict[int, Call])
    """By the order in which they were requested; those in flight are not in it yet."""
    num_asked: int = 0
    action: str | None = None
    action_valid: bool = False
    reward: float = 0.0
    environment_seconds: float = 0.0

    @property
    def ordered_calls(self) -> tuple[Call, ...]:
        return tuple(self.calls[place] for place in sorted(self.calls))


class EpisodeSession:
    """One episode: `observe`, `complete`, `acted`, `reward`, again and again, then `end`."""

    def __init__(
        self, spec: EpisodeSpec, *, limits: EpisodeLimits, responder: Responder | None = None
    ) -> None:
        """A session in which nothing has been observed yet.

        Args:
            spec: The task, the seed and the place in the group.
            limits: Bounds of the episode.
            responder: Answers `complete`; None where nobody calls it.
        """
        self._spec = spec
        self._limits = limits
        self._responder = responder
        self._steps: list[_Draft] = []
        """Those that were acted in, and after them the open one."""
        self._streams: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
        """Sampled calls by agent and purpose: what a prompt may go on from."""
        self._num_tokens = 0
        self._final_prompt_tokens: tuple[int, ...] | None = None
        self.restart_clock()

    def restart_clock(self) -> None:
        """Let the episode's time begin now: its turn has come."""
        self._started_at, self._clock_at_start = time.time(), time.perf_counter()

    @property
    def task(self) -> Task:
        """What is to be done."""
        return self._spec.task

    @property
    def num_steps(self) -> int:
        """Steps that were acted in."""
        return len(self._steps) - self.awaits_action

    @property
    def awaits_action(self) -> bool:
        """Whether a step is open in which nothing was done yet."""
        return bool(self._steps) and self._steps[-1].action is None

    @property
    def observation(self) -> Observation:
        """The newest one.

        Raises:
            RuntimeError: Nothing was observed yet.
        """
        return self._newest().observation

    def require_readable(self, observation: Observation) -> None:
        """Refuse an observation that is longer than it may be.

        Raises:
            EnvironmentFailure: It is too long; the message names both numbers.
        """
        texts = (
            observation.text,
            *(observation.admissible_actions or ()),
            observation.anchor_state or "",
        )
        length, limit = sum(map(len, texts)), self._limits.max_observation_characters
        if length > limit:
            raise EnvironmentFailure(
                f"observation of {length} characters, its admissible actions and anchor state "
                f"included, exceeds max_observation_characters = {limit}"
            )

    def observe(self, observation: Observation) -> None:
        """Close the open step, and open the next one with what is seen now.

        What is seen may be all that there is, or only what came since the step before.

        Raises:
            EnvironmentFailure: The observation is too long.
            RuntimeError: Nothing was done in the open step; act first, or make one observation of
                both.
        """
        self.require_readable(observation)
        if self.awaits_action:
            raise RuntimeError(
                f"step {self._steps[-1].index} has no action yet, and cannot be followed"
            )
        self._steps.append(_Draft(index=len(self._steps), observation=observation))

    async def complete(
        self,
        prompt: Sequence[Message] | Shortenable,
        *,
        purpose: str = "act",
        agent: str = "",
        trained: bool = True,
        credit_share: float = 1.0,
        max_reply_tokens: int | None = None,
        responder: Responder | None = None,
    ) -> Call:
        """Have the policy reply, and record the call in the open step.

        Args:
            prompt: Messages; a `Shortenable` prompt loses as few exchanges as make it fit.
            purpose: What the call is for; the last one to `act` is the one that chose the action.
            agent: Whose call it is, where a program has several agents.
            trained: Whether the reply's tokens are in the loss.
            credit_share: What the step's advantage is multiplied by for these tokens.
            max_reply_tokens: Longest reply, from 1 to the responder's, which None stands for.
            responder: Who replies instead of the session's, e.g. the same at another temperature.

        Raises:
            HorizonReached: The open step would be one more than the horizon allows.
            ValueError: `max_reply_tokens` is out of range.
            TokensSpent: The prompt is longer than it may be, or the episode's tokens do not suffice
                for it and a longest reply.
            PolicyFailure: The policy failed, or gave no usable reply.
            PolicyTimeout: It did not answer within its deadline.
            RendererFailure: The messages cannot be rendered.
            MemoryFailure: Composing the prompt failed.
            RuntimeError: Nothing was observed yet, or the session has no responder.
        """
        step = self._open()
        responder = responder or self._required_responder()
        longest = responder.max_reply_tokens if max_reply_tokens is None else max_reply_tokens
        if not 1 <= longest <= responder.max_reply_tokens:
            raise ValueError(
                f"max_reply_tokens must lie in [1, {responder.max_reply_tokens}], got {longest}"
            )
        place = step.num_asked
        step.num_asked += 1
        earlier = tuple(self._streams[agent, purpose])
        asked, dropped = await self._fitted(
            prompt, responder.renderer, earlier, begins_reply=purpose == "act"
        )
        self._require_room(asked, longest)
        sampling = Sampling(
            seed=call_seed(step_seed(self._spec.seed, step_index=step.index), call_index=place),
            temperature=responder.temperature,
            top_p=responder.top_p,
            max_tokens=longest,
        )
        # A call that overlaps with this one must not spend the same tokens.
        reserved = len(asked.tokens) + longest
        self._num_tokens += reserved
        began = time.perf_counter()
        try:
            completion = await self._sample(responder, asked, sampling)
            self._num_tokens += len(asked.tokens) + len(completion.action_tokens)
        finally:
            self._num_tokens -= reserved  # a call that failed, or was given up, is no part of it
        seconds = time.perf_counter() - began
        call = Call(
            messages=asked.messages,
            reply=well_formed(completion.text),
            sampled=SampledTokens(
                prompt_tokens=asked.tokens,
                action_tokens=completion.action_tokens,
                behavior_logprobs=completion.behavior_logprobs,
                policy_version=completion.policy_version,
            ),
            purpose=purpose,
            agent=agent,
            finish_reason=completion.finish_reason,
            tool_calls=completion.tool_calls,
            trained=trained,
            credit_share=credit_share,
            dropped_exchanges=dropped,
            num_cached_tokens=completion.num_cached_tokens,
            queue_seconds=completion.queue_seconds,
            generate_seconds=max(0.0, seconds - completion.queue_seconds),
        )
        step.calls[place] = call
        self._streams[agent, purpose].append(call)
        return call

    def record(self, call: Call) -> None:
        """Record a call that somebody else answered, e.g. a hosted model, in the open step.

        Its tokens, if it has any, are not counted: the limit is on what our engine reads.

        Raises:
            HorizonReached: The open step would be one more than the horizon allows.
            RuntimeError: Nothing was observed yet.
        """
        step = self._open()
        step.calls[step.num_asked] = call
        step.num_asked += 1

    def acted(self, action: str, *, valid: bool, environment_seconds: float = 0.0) -> None:
        """Report what was done in the open step.

        Args:
            action: What the environment was given; the reply itself where nothing is read from it.
            valid: Whether it had the asked-for form and is an admissible action.
            environment_seconds: For how long the environment worked on it.

        Raises:
            HorizonReached: The open step would be one more than the horizon allows.
            RuntimeError: Nothing was observed yet, or the step has its action.
        """
        step = self._open()
        if step.action is not None:
            raise RuntimeError(f"step {step.index} has its action already: {step.action!r}")
        step.action, step.action_valid = action, valid
        step.environment_seconds = environment_seconds

    def reward(self, value: float, *, step_index: int | None = None) -> None:
        """Add to what a step was paid, at any time before the end.

        Args:
            value: In the environment's own units.
            step_index: Which step, from 0; None is the last one that was acted in.

        Raises:
            ValueError: The value is not finite.
            RuntimeError: The step was not acted in.
        """
        if not math.isfinite(value):
            raise ValueError(f"reward must be finite, got {value}")
        index = self.num_steps - 1 if step_index is None else step_index
        if not 0 <= index < self.num_steps:
            raise RuntimeError(f"step {index} cannot be paid: {self.num_steps} steps were acted in")
        self._steps[index].reward += value

    async def compose_final_prompt(self, prompt: Shortenable) -> None:
        """Keep the prompt that the next step would have: what a critic values of a truncated one.

        It is neither answered nor trained on, so where no shortening makes it fit its end is kept.

        Raises:
            RendererFailure: The messages cannot be rendered.
            MemoryFailure: Composing the prompt failed.
        """
        renderer = self._required_responder().renderer
        earlier = tuple(self._streams["", "act"])
        asked, _ = await self._fitted(prompt, renderer, earlier, begins_reply=True)
        self._final_prompt_tokens = asked.tokens[-self._limits.max_prompt_tokens :]

    def end(self, stop_reason: StopReason, *, success: bool) -> Trajectory:
        """The record of an episode that ran to an end.

        The final observation is the newest one. Where none came after the last action, nothing was
        seen, and its text is empty. Calls of a step in which nothing was done, because a limit was
        reached before it acted, are no part of the record.

        Raises:
            RuntimeError: No step was acted in.
        """
        steps = self._finished()
        if not steps:
            raise RuntimeError(f"task {self.task.task_id!r} cannot end before its first action")
        last = self._steps[-1]
        if self.awaits_action and last.num_asked:
            logger.info(
                "episode %s: calls before an action that was never chosen are left out: %d",
                self._spec.episode_id,
                last.num_asked,
            )
        return Trajectory(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            steps=steps,
            stop_reason=stop_reason,
            success=success,
            final_observation=last.observation if self.awaits_action else Observation(text=""),
            final_prompt_tokens=self._final_prompt_tokens,
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )

    def failed(self, error: EpisodeError) -> FailedEpisode:
        """The record of an episode that broke: its cause, and the steps that were acted in."""
        return FailedEpisode(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            cause=error.cause,
            message=message_of(error, limit=2 * MAX_MESSAGE_CHARACTERS),
            steps=self._finished(),
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )

    def _required_responder(self) -> Responder:
        if self._responder is None:
            raise RuntimeError("this session has nobody who replies; give it a responder")
        return self._responder

    def _newest(self) -> _Draft:
        if not self._steps:
            raise RuntimeError("nothing was observed yet; observe first")
        return self._steps[-1]

    def _open(self) -> _Draft:
        """The open step, if the horizon allows it."""
        step = self._newest()
        if step.index >= self._limits.horizon:
            raise HorizonReached(f"the episode has its {self._limits.horizon} steps")
        return step

    def _finished(self) -> tuple[Step, ...]:
        return tuple(
            Step(
                index=step.index,
                observation=step.observation,
                calls=step.ordered_calls,
                action=step.action,
                action_valid=step.action_valid,
                reward=step.reward,
                environment_seconds=step.environment_seconds,
            )
            for step in self._steps
            if step.action is not None
        )

    async def _sample(self, responder: Responder, prompt: Prompt, sampling: Sampling) -> Completion:
        limit = self._limits.policy_deadline_seconds
        async with deadline(limit, "policy.act", failure=PolicyFailure, late=PolicyTimeout):
            completion = await responder.policy.act(
                prompt, sampling, episode_id=self._spec.episode_id
            )
            _check(completion)
        return completion

    async def _fitted(
        self,
        prompt: Sequence[Message] | Shortenable,
        renderer: Renderer,
        earlier: tuple[Call, ...],
        *,
        begins_reply: bool,
    ) -> tuple[Prompt, int]:
        """The prompt, shortened as little as it takes, and how many exchanges that cost.

        It is composed and rendered in a thread: a long one takes seconds, and on the event loop it
        would cost other episodes their deadlines.
        """

        def rendered(messages: tuple[Message, ...]) -> Prompt:
            with attributed_to(RendererFailure, "renderer.render"):
                tokens = renderer.render(messages, earlier=earlier, begins_reply=begins_reply)
                return Prompt(messages=messages, tokens=tokens)

        if not isinstance(prompt, Shortenable):
            return await asyncio.to_thread(rendered, tuple(prompt)), 0
        return await asyncio.to_thread(
            _shortened, prompt, rendered, limit=self._limits.max_prompt_tokens
        )

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


def _shortened(
    prompt: Shortenable, rendered: Callable[[tuple[Message, ...]], Prompt], *, limit: int
) -> tuple[Prompt, int]:
    """The prompt of at most `limit` tokens that leaves out least; the whole one if none is."""

    def without(drop: int) -> Prompt:
        with attributed_to(MemoryFailure, "memory.compose"):
            messages = prompt.compose(drop)
        return rendered(messages)

    whole = without(0)
    if len(whole.tokens) <= limit:
        return whole, 0
    with attributed_to(MemoryFailure, "memory.num_remembered"):
        drops = range(1, prompt.num_droppable() + 1)
    place = bisect_left(drops, True, key=lambda drop: len(without(drop).tokens) <= limit)
    if place == len(drops):
        return whole, 0
    return without(drops[place]), drops[place]


def _check(completion: Completion) -> None:
    """Refuse a reply that could not be trained on."""
    num_tokens, num_logprobs = len(completion.action_tokens), len(completion.behavior_logprobs)
    if completion.finish_reason is FinishReason.ABORTED:
        raise ValueError("the reply was aborted")
    if not num_tokens:
        raise ValueError("the reply has no tokens")
    if num_tokens != num_logprobs:
        raise ValueError(f"{num_tokens} tokens but {num_logprobs} logprobs")
    if not all(map(math.isfinite, completion.behavior_logprobs)):
        raise ValueError("a logprob is not finite")
