"""One episode, from reset to its record.

The loop never raises for an episode's failure: whatever breaks in the environment,
the policy, the memory or the renderer becomes a `FailedEpisode` with its cause and the
steps finished before it, and so does an episode that is told to stop. Cancellation passes,
and so does anything that is a fault of ours. The environment is closed on every way out.

Prompts are composed and rendered in a thread: a long one takes seconds, and on the event loop
it would cost other episodes their deadlines.
"""

import asyncio
import logging
import math
import time
from bisect import bisect_left
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager

from longhaul_core.environment import Environment, EnvironmentFactory, StepResult
from longhaul_core.errors import (
    MAX_MESSAGE_CHARACTERS,
    EnvironmentFailure,
    EnvironmentTimeout,
    EpisodeError,
    EpisodeStopped,
    MemoryFailure,
    PolicyFailure,
    PolicyTimeout,
    RendererFailure,
    attributed_to,
    message_of,
)
from longhaul_core.memory import Memory
from longhaul_core.policy import Completion, Prompt, Sampling
from longhaul_core.rollout.agent import Agent
from longhaul_core.rollout.deadline import awaited, deadline
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.seeds import step_seed
from longhaul_core.rollout.spec import EpisodeSpec
from longhaul_core.text import well_formed
from longhaul_core.types import (
    Call,
    FailedEpisode,
    Observation,
    SampledTokens,
    Step,
    StopReason,
    Trajectory,
)

__all__ = ["EpisodeOutcome", "run_episode"]

logger = logging.getLogger(__name__)

EpisodeOutcome = Trajectory | FailedEpisode


async def run_episode(
    spec: EpisodeSpec,
    *,
    agent: Agent,
    make_environment: EnvironmentFactory,
    limits: EpisodeLimits,
    with_final_prompt: bool = False,
    stop: asyncio.Event | None = None,
) -> EpisodeOutcome:
    """Play one episode and return its record.

    Args:
        spec: The task, the seed and the place in the group.
        agent: Chooses the actions.
        make_environment: Called once; what it makes is closed before this returns.
        limits: Bounds of the episode.
        with_final_prompt: Compose the prompt of a truncated episode's final observation, which a
            critic values. Nobody answers it.
        stop: Once it is set the episode gives up what it waits for, an answer of the policy
            or of the environment, and closes; None for an episode that nobody stops.

    Returns:
        A `Trajectory` if the episode ended or a limit truncated it, a `FailedEpisode`
        if something broke or missed its deadline, or if it was stopped.
    """
    episode = _Episode(spec, agent=agent, limits=limits)
    try:
        playing = episode.play(make_environment, with_final_prompt=with_final_prompt)
        stop_reason = await (playing if stop is None else _until_stopped(playing, stop))
    except EpisodeError as failure:
        return episode.failed(failure)
    return episode.ended(stop_reason)


async def _until_stopped(
    playing: Coroutine[None, None, StopReason], stop: asyncio.Event
) -> StopReason:
    """Play to the end, or until `stop` is set.

    An episode that has ended by the time it is stopped has ended.

    Raises:
        EpisodeStopped: It was stopped, and has closed its environment.
    """
    episode = asyncio.create_task(playing)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({episode, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not episode.done():
            episode.cancel()
            await asyncio.wait({episode})
        if episode.cancelled():
            raise EpisodeStopped("enough other groups of the training step were whole")
        return episode.result()
    finally:
        stopped.cancel()
        if not episode.done():  # whoever waits for this one was cancelled
            episode.cancel()
            await asyncio.wait({episode})


class _Episode:
    """The state of one episode while it is played."""

    def __init__(self, spec: EpisodeSpec, *, agent: Agent, limits: EpisodeLimits) -> None:
        self._spec = spec
        self._agent = agent
        self._limits = limits
        self._steps: list[Step] = []
        self._success = False
        self._final_prompt_tokens: tuple[int, ...] | None = None
        self._num_tokens = 0
        self._started_at = time.time()
        self._clock_at_start = time.perf_counter()

    async def play(
        self, make_environment: EnvironmentFactory, *, with_final_prompt: bool
    ) -> StopReason:
        """Run to the end; `EpisodeError` says what broke."""
        with attributed_to(MemoryFailure, "making the memory"):
            memory = self._agent.build_memory()
        with attributed_to(EnvironmentFailure, "making the environment"):
            environment = make_environment(self._spec.task)
        try:
            with awaited("environment.open", failure=EnvironmentFailure):
                await environment.open()
            # The clock starts when the episode's turn has come, not in the queue before it.
            self._started_at, self._clock_at_start = time.time(), time.perf_counter()
            self._observation = await self._reset(environment)
            stop_reason = await self._steps_to_the_end(environment, memory)
            if with_final_prompt and stop_reason.truncated:
                self._final_prompt_tokens = await asyncio.to_thread(self._final_prompt, memory)
            return stop_reason
        finally:
            await self._close(environment)

    async def _steps_to_the_end(self, environment: Environment, memory: Memory) -> StopReason:
        while len(self._steps) < self._limits.horizon:
            prompt, dropped = await asyncio.to_thread(self._compose, memory)
            if not self._fits(prompt):
                return StopReason.TOKEN_BUDGET_SPENT
            stop_reason = await self._step(environment, memory, prompt, dropped)
            if stop_reason is not None:
                return stop_reason
        return StopReason.HORIZON_REACHED

    def _final_prompt(self, memory: Memory) -> tuple[int, ...]:
        """The next step's prompt; its end, where no shortening of the memory's makes it fit.

        It is valued and neither answered nor trained on, so the reader's limit may cut it.
        """
        prompt, _ = self._compose(memory)
        return prompt.tokens[-self._limits.max_prompt_tokens :]

    async def _reset(self, environment: Environment) -> Observation:
        limit = self._limits.reset_deadline_seconds
        async with _environment_deadline(limit, "environment.reset"):
            observation = await environment.reset(self._spec.task)
            self._check_length(observation)
            return observation

    async def _step(
        self, environment: Environment, memory: Memory, prompt: Prompt, dropped: int
    ) -> StopReason | None:
        """One exchange; returns why the environment ended the episode, if it did."""
        observation = self._observation
        asked = time.perf_counter()
        completion = await self._act(prompt)
        answered = time.perf_counter()
        reply = well_formed(completion.text)
        with attributed_to(PolicyFailure, "parsing the reply"):
            action = self._agent.parser.parse(reply, observation.admissible_actions)

        limit = self._limits.step_deadline_seconds
        async with _environment_deadline(limit, "environment.step"):
            result = await environment.step(action.text)
            if not math.isfinite(result.reward):
                raise ValueError(f"reward must be finite, got {result.reward}")
            self._check_length(result.observation)
        stepped = time.perf_counter()

        call = Call(
            messages=prompt.messages,
            reply=reply,
            sampled=SampledTokens(
                prompt_tokens=prompt.tokens,
                action_tokens=completion.action_tokens,
                behavior_logprobs=completion.behavior_logprobs,
                policy_version=completion.policy_version,
            ),
            finish_reason=completion.finish_reason,
            dropped_exchanges=dropped,
            queue_seconds=completion.queue_seconds,
            generate_seconds=max(0.0, answered - asked - completion.queue_seconds),
        )
        self._steps.append(
            Step(
                index=len(self._steps),
                observation=observation,
                calls=(call,),
                action=action.text,
                action_valid=action.valid and result.action_accepted,
                reward=result.reward,
                environment_seconds=stepped - answered,
            )
        )
        self._num_tokens += len(prompt.tokens) + len(completion.action_tokens)
        self._observation = result.observation
        self._success = result.success
        with attributed_to(MemoryFailure, "memory.write"):
            memory.write(observation=observation, reply=reply, action=action.text)
        return _stop_reason(result)

    async def _act(self, prompt: Prompt) -> Completion:
        sampling = Sampling(
            seed=step_seed(self._spec.seed, step_index=len(self._steps)),
            temperature=self._agent.temperature,
            top_p=self._agent.top_p,
            max_tokens=self._agent.max_reply_tokens,
        )
        limit = self._limits.policy_deadline_seconds
        async with deadline(limit, "policy.act", failure=PolicyFailure, late=PolicyTimeout):
            completion = await self._agent.policy.act(
                prompt, sampling, episode_id=self._spec.episode_id
            )
            _check(completion)
        return completion

    def _compose(self, memory: Memory) -> tuple[Prompt, int]:
        """The prompt, shortened as little as it takes, and how many exchanges that cost."""
        prompt = self._render(memory, drop=0)
        limit = self._limits.max_prompt_tokens
        if len(prompt.tokens) <= limit:
            return prompt, 0
        with attributed_to(MemoryFailure, "memory.num_remembered"):
            drops = range(1, memory.num_remembered + 1)
        place = bisect_left(
            drops, True, key=lambda drop: len(self._render(memory, drop=drop).tokens) <= limit
        )
        if place == len(drops):
            return prompt, 0
        return self._render(memory, drop=drops[place]), drops[place]

    def _render(self, memory: Memory, *, drop: int) -> Prompt:
        with attributed_to(MemoryFailure, "memory.compose"):
            messages = memory.compose(self._observation, drop=drop)
        with attributed_to(RendererFailure, "renderer.render"):
            before = self._steps[-1] if self._steps else None
            tokens = self._agent.renderer.render(messages, after=before)
            return Prompt(messages=messages, tokens=tokens)

    def _fits(self, prompt: Prompt) -> bool:
        """Whether the limits on tokens let the step begin.

        Raises:
            MemoryFailure: If they do not even before the first step, where there is
                no trajectory that could be truncated.
        """
        num_prompt, limit = len(prompt.tokens), self._limits.max_prompt_tokens
        problem = ""
        if num_prompt > limit:
            problem = f"prompt of {num_prompt} tokens exceeds max_prompt_tokens = {limit}"
        budget, longest_reply = self._limits.max_episode_tokens, self._agent.max_reply_tokens
        if budget is not None and self._num_tokens + num_prompt + longest_reply > budget:
            problem = problem or (
                f"prompt of {num_prompt} and reply of up to {longest_reply} tokens "
                f"exceed max_episode_tokens = {budget}"
            )
        if problem and not self._steps:
            raise MemoryFailure(f"{problem}, before the first step; nothing is left to drop")
        return not problem

    def _check_length(self, observation: Observation) -> None:
        texts = (
            observation.text,
            *(observation.admissible_actions or ()),
            observation.anchor_state or "",
        )
        length, limit = sum(map(len, texts)), self._limits.max_observation_characters
        if length > limit:
            raise ValueError(
                f"observation of {length} characters, its admissible actions and anchor state "
                f"included, exceeds max_observation_characters = {limit}"
            )

    async def _close(self, environment: Environment) -> None:
        """Close, whatever happened; a failure here is logged and changes no record."""
        limit = self._limits.close_deadline_seconds
        try:
            async with _environment_deadline(limit, "environment.close"):
                await environment.close()
        except EpisodeError as error:
            logger.warning("episode %s: %s", self._spec.episode_id, error)

    def ended(self, stop_reason: StopReason) -> Trajectory:
        """The record of an episode that ran to an end."""
        return Trajectory(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            steps=tuple(self._steps),
            stop_reason=stop_reason,
            success=self._success,
            final_observation=self._observation,
            final_prompt_tokens=self._final_prompt_tokens,
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )

    def failed(self, failure: EpisodeError) -> FailedEpisode:
        """The record of an episode that broke."""
        return FailedEpisode(
            task=self._spec.task,
            sample_index=self._spec.sample_index,
            seed=self._spec.seed,
            horizon=self._limits.horizon,
            cause=failure.cause,
            message=message_of(failure, limit=2 * MAX_MESSAGE_CHARACTERS),
            steps=tuple(self._steps),
            started_at=self._started_at,
            duration_seconds=time.perf_counter() - self._clock_at_start,
        )


def _environment_deadline(seconds: float, action: str) -> AbstractAsyncContextManager[None]:
    return deadline(seconds, action, failure=EnvironmentFailure, late=EnvironmentTimeout)


def _check(completion: Completion) -> None:
    """Refuse a reply that could not be trained on."""
    num_tokens, num_logprobs = len(completion.action_tokens), len(completion.behavior_logprobs)
    if not num_tokens:
        raise ValueError("the reply has no tokens")
    if num_tokens != num_logprobs:
        raise ValueError(f"{num_tokens} tokens but {num_logprobs} logprobs")
    if not all(map(math.isfinite, completion.behavior_logprobs)):
        raise ValueError("a logprob is not finite")


def _stop_reason(result: StepResult) -> StopReason | None:
    if result.terminated:
        return StopReason.TASK_SOLVED if result.success else StopReason.TASK_FAILED
    return StopReason.ENVIRONMENT_LIMIT if result.truncated else None
