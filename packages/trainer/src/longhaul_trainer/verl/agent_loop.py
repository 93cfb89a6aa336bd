"""Our agent loop, as verl's agent-loop worker calls it: one call plays one episode.

verl gives each worker process a batch of prompts and awaits one session for each place in
a group; here a prompt is a task, and verl's session is an episode played by an `EpisodeRunner`,
with its retries. What every episode of a process shares (environments, slots, templates) is
built once, by `EpisodeService`. A run has one such process or several, as
`longhaul_trainer.agent_loops` decides: slots, environment processes and records on their way are
shares of the run's, and of the token pieces that several hand over the store keeps the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase
from verl.experimental.agent_loop import AgentLoopOutput
from verl.workers.rollout.llm_server import LLMServerClient

from longhaul_core.actions import build_parser
from longhaul_core.errors import ConfigError
from longhaul_core.policy import Completion, Prompt, Renderer, Sampling
from longhaul_core.rollout import (
    Agent,
    EpisodeLimits,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    Responder,
    build_acting,
    episode_seed,
)
from longhaul_core.store.records import EpisodeRecord, Phase, TokenPieces
from longhaul_core.types import FailedEpisode, FinishReason, Task, Trajectory
from longhaul_trainer.agent_loops import AgentLoop, episodes_of_a_group
from longhaul_trainer.config import MixedEnvironmentConfig
from longhaul_trainer.environments import RunEnvironments, memory_builder, prompt_template
from longhaul_trainer.reward_shaping import load_reward_shaping, shaped_by
from longhaul_trainer.training.merging import metadata_of
from longhaul_trainer.training.run_context import RunContext
from longhaul_trainer.training.step_metadata import GroupName
from longhaul_trainer.training.stopping import EpisodesInFlight, Stopped
from longhaul_trainer.verl.client import QUEUE_SECONDS
from longhaul_trainer.verl.renderer import ChatTemplateRenderer, token_pieces
from longhaul_trainer.verl.rows import to_rows
from longhaul_trainer.verl.run_recorder import MAX_PENDING, RunRecorder

GREEDY_SESSION = "greedy_session"
"""Column of verl's prompts: the session that plays the greedy episode beside a group."""

PHASES: tuple[Phase, ...] = ("train", "baseline", "validation", "test")

LONGEST_UPDATE_SECONDS = 24 * 3600.0
"""How long a reply may wait for the learner in asynchronous rollout: an update takes its time, and
is no failure of the episode."""


class EnginePolicy:
    """verl's rollout server as a `Policy`: token ids in, token ids and logprobs out."""

    def __init__(
        self,
        server: LLMServerClient,
        renderer: Renderer,
        *,
        end_token: int | None,
        policy_version: Callable[[int], int],
        seeded: bool = True,
    ) -> None:
        """Prepare a policy; nothing is sampled yet.

        Args:
            server: Answers requests.
            renderer: Makes text of replies.
            end_token: By which the model ends a reply.
            policy_version: Optimizer steps behind the weights that came out of a training step.
            seeded: Whether each reply is drawn by its own seed, or by the engine's generator.
        """
        self._server = server
        self._renderer = renderer
        self._end_token = end_token
        self._policy_version = policy_version
        self._seeded = seeded

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        """See `Policy.act`."""
        asked: dict[str, object] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": sampling.max_tokens,
        }
        if self._seeded:
            asked["seed"] = sampling.seed
        output = await self._server.generate(
            episode_id, prompt_ids=list(prompt.tokens), sampling_params=asked
        )
        tokens, logprobs = tuple(output.token_ids), output.log_probs
        if output.stop_reason == "aborted" or not tokens or logprobs is None:
            raise RuntimeError(f"the engine gave no reply (stop reason {output.stop_reason!r})")
        return Completion(
            text=self._renderer.decode(tokens),
            action_tokens=tokens,
            behavior_logprobs=tuple(logprobs),
            # A reply that waited for an update is finished by other weights than began it.
            policy_version=self._policy_version(output.extra_fields["min_global_steps"]),
            # verl reports replies that reached their limit as completed.
            finish_reason=FinishReason.LENGTH
            if len(tokens) >= sampling.max_tokens and tokens[-1] != self._end_token
            else FinishReason.STOP,
            num_cached_tokens=output.extra_fields.get("num_cached_tokens"),
            queue_seconds=output.extra_fields.get(QUEUE_SECONDS, 0.0),
        )


class EpisodeService:
    """What the episodes of one process share."""

    def __init__(
        self,
        run_context: RunContext,
        server: LLMServerClient,
        tokenizer: PreTrainedTokenizerBase,
        *,
        agent_loop: AgentLoop | None = None,
    ) -> None:
        run = run_context.config
        agent_loop = agent_loop or AgentLoop()
        self.run_context = run_context
        self.run = run
        self.recorder = RunRecorder.find(
            run_context.recorder_name, max_pending=max(1, MAX_PENDING // agent_loop.of)
        )
        self.in_flight = EpisodesInFlight()
        self._runner = EpisodeRunner(
            make_environment=RunEnvironments(run, agent_loop=agent_loop),
            concurrency=agent_loop.share(
                run.rollout.concurrent_episodes, unit=episodes_of_a_group(run)
            ),
            max_retries=run.rollout.max_retries if run.rollout.on_failure == "retry" else 0,
        )
        self._tokenizer = tokenizer
        self._known_tokens: set[int] = set()
        shaping = run.algorithm.reward_shaping
        self._shaping = None if shaping is None else load_reward_shaping(shaping)
        self._acting = build_acting(run.agent.kind)
        self._entries = {entry.id: entry for entry in run.played_environments}
        prefixes = {entry.prompt.reply_prefix for entry in run.played_environments}
        # Environments may be a thousand; what they are rendered with knows the whole vocabulary.
        responders = {prefix: self._responder_for(prefix, server) for prefix in prefixes}
        self._agents = {
            (entry.id, phase): agent
            for entry in run.played_environments
            for phase, agent in self._agents_for(entry, responders[entry.prompt.reply_prefix])
        }

    def _responder_for(self, reply_prefix: str, server: LLMServerClient) -> Responder:
        """The responder to prompts that end with this prefix, as in training."""
        run, tokenizer = self.run, self._tokenizer
        renderer = ChatTemplateRenderer(tokenizer, reply_prefix=reply_prefix)
        return Responder(
            policy=EnginePolicy(
                server,
                renderer,
                end_token=cast("int | None", tokenizer.eos_token_id),
                policy_version=run.policy_version,
                seeded=run.rollout.reproducibility == "exact",
            ),
            renderer=renderer,
            temperature=run.rollout.temperature,
            top_p=run.rollout.top_p,
            max_reply_tokens=run.rollout.max_reply_tokens,
        )

    def _agents_for(
        self, entry: MixedEnvironmentConfig, responder: Responder
    ) -> Generator[tuple[Phase, Agent]]:
        """The agent of an environment in each phase: one policy, with its parser and memory."""
        renderer = cast("ChatTemplateRenderer", responder.renderer)
        parser = build_parser(
            entry.actions.format,
            require_thinking=entry.actions.require_thinking,
            reply_prefix=renderer.begun_thought + entry.prompt.reply_prefix,
        )
        template = prompt_template(entry, self.run_context.descriptions[entry.id])
        for phase in PHASES:
            yield (
                phase,
                Agent(
                    policy=responder.policy,
                    renderer=renderer,
                    parser=parser,
                    build_memory=memory_builder(entry, template=template),
                    acting=self._acting,
                    temperature=self._temperature(phase),
                    top_p=responder.top_p if phase == "train" else 1.0,
                    max_reply_tokens=responder.max_reply_tokens,
                ),
            )

    def _temperature(self, phase: Phase) -> float:
        rollout, validation = self.run.rollout, self.run.validation
        return {"train": rollout.temperature, "baseline": 0.0}.get(phase, validation.temperature)

    def limits(self, environment_id: str, horizon: int) -> EpisodeLimits:
        """Limits of an episode of this environment with this horizon."""
        rollout, environment = self.run.rollout, self._entries[environment_id]
        return EpisodeLimits(
            horizon=horizon,
            max_prompt_tokens=rollout.max_prompt_tokens,
            max_episode_tokens=rollout.max_episode_tokens,
            max_observation_characters=environment.max_observation_characters,
            reset_deadline_seconds=environment.reset_deadline_seconds,
            step_deadline_seconds=environment.step_deadline_seconds,
            policy_deadline_seconds=rollout.policy_deadline_seconds
            + (0 if self.run.trainer.mode == "sync" else LONGEST_UPDATE_SECONDS),
        )

    async def play(
        self,
        task: Task,
        *,
        phase: Phase,
        training_step: int,
        group_index: int,
        sample_index: int,
        horizon: int,
    ) -> list[AgentLoopOutput]:
        """Play one episode, retried as configured, and return its rows; none if all failed.

        One that is stopped has no rows either, and is not retried.
        """
        run = self.run
        group = f"{phase}-{training_step}-{group_index}"  # as its rows say
        spec = EpisodeSpec(
            task=task,
            seed=episode_seed(
                run.seed,
                training_step=training_step,
                group_index=group_index,
                sample_index=sample_index,
                phase=phase,
            ),
            group_index=group_index,
            sample_index=sample_index,
        )

        async def store(result: EpisodeResult) -> None:
            self.in_flight.note(group, result.outcome)
            await self._store(result, phase=phase, training_step=training_step)

        with self.in_flight.playing(group) as stop:
            last = await self._runner.play(
                spec,
                agent=self._agents[task.environment, phase],
                limits=self.limits(task.environment, horizon),
                with_final_prompt=run.algorithm.uses_critic and phase == "train",
                stop=stop,
                on_try=store,
            )
        if isinstance(last.outcome, FailedEpisode):
            return []
        rewards, problem = self._shaped(last.outcome) if phase == "train" else (None, "")
        metadata = metadata_of(
            last.outcome,
            group=GroupName(training_step, group_index),
            retry=last.spec.retry,
            greedy=phase == "baseline",
            anchor_texts=run.algorithm.anchor_similarity is not None,
            hook_rewards=rewards,
            hook_error=problem,
        )
        # Beside the event loop, as all that goes through every token of an episode.
        return await asyncio.to_thread(
            to_rows,
            last.outcome,
            metadata=metadata,
            training_step_of=run.training_step_of,
            form=run.optimizer.rows,
            max_row_tokens=run.optimizer.max_row_tokens,
        )

    async def _store(self, result: EpisodeResult, *, phase: Phase, training_step: int) -> None:
        """Wait until the store has a try.

        The trainer then reports on its rows, maybe from another process, and a report is not held
        back until the store has what it is about.
        """
        run = self.run
        record = EpisodeRecord(
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            phase=phase,
            training_step=training_step,
            group_index=result.spec.group_index,
            retry=result.spec.retry,
            outcome=result.outcome,
            group_size={"train": run.rollout.group_size, "baseline": 1}.get(
                phase, run.validation.samples_per_task
            ),
        )
        tokens = await asyncio.to_thread(_tokens_of, result.outcome)
        await self.recorder.commit([*self._new_pieces(tokens), record])

    def _shaped(self, episode: Trajectory) -> tuple[Sequence[float] | None, str]:
        """What the run's own function returns for the steps, or why it returns nothing.

        An error raised here would be verl's, which logs it and leaves the group out.
        """
        name = self.run.algorithm.reward_shaping
        if self._shaping is None or name is None:
            return None, ""
        try:
            return shaped_by(self._shaping, episode, name=name), ""
        except ConfigError as error:
            return None, str(error)

    def _new_pieces(self, tokens: set[int]) -> list[TokenPieces]:
        new = tokens - self._known_tokens
        if not new:
            return []
        self._known_tokens |= new
        pieces = token_pieces(self._tokenizer, sorted(new))
        return [TokenPieces(run_id=self.run_context.run_id, pieces=pieces)]


def _tokens_of(outcome: Trajectory | FailedEpisode) -> set[int]:
    """Every token that an episode's calls read or wrote."""
    return set[int]().union(
        *(
            tokens
            for step in outcome.steps
            for call in step.calls
            if call.sampled is not None
            for tokens in (call.sampled.prompt_tokens, call.sampled.action_tokens)
        )
    )


_services: dict[str, EpisodeService] = {}

_this_process = AgentLoop()
"""Which of the run's agent loops plays here."""


def become(agent_loop: AgentLoop) -> None:
    """Have this process play with the limits of one agent loop; before its first episode."""
    global _this_process
    _this_process = agent_loop


def this_process() -> AgentLoop:
    """Which of the run's agent loops plays here; the only one unless `become` changed it."""
    return _this_process


def stop_groups(groups: Sequence[str]) -> dict[str, Stopped]:
    """Stop the episodes of `groups` that this process plays; see `EpisodesInFlight.stop`."""
    return {
        group: stopped
        for service in _services.values()
        for group, stopped in service.in_flight.stop(groups).items()
    }


class EpisodeAgentLoop:
    """What verl instantiates for each session; `run` plays the session's episode."""

    def __init__(
        self,
        *,
        run_context: str,
        server_manager: LLMServerClient,
        tokenizer: PreTrainedTokenizerBase,
        **others: object,
    ) -> None:
        if run_context not in _services:
            _services[run_context] = EpisodeService(
                RunContext.read(Path(run_context)),
                server_manager,
                tokenizer,
                agent_loop=this_process(),
            )
        self._service = _services[run_context]

    async def run(
        self,
        sampling_params: dict[str, Any],
        *,
        task: Task,
        phase: Phase,
        training_step: int,
        group_index: int,
        session_id: int,
        horizon: int,
        **others: object,
    ) -> list[AgentLoopOutput]:
        """Play the episode at place `session_id` of the task's group, or the one beside it."""
        is_greedy = session_id == others.get(GREEDY_SESSION)
        return await self._service.play(
            task,
            phase="baseline" if is_greedy else phase,
            training_step=training_step,
            group_index=group_index,
            sample_index=0 if is_greedy else session_id,
            horizon=horizon,
        )
