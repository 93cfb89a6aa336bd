"""Our agent loop, as verl's agent-loop worker calls it: one call plays one episode.

verl gives each worker process a batch of prompts and awaits one session for each place in
a group; here a prompt is a task, and verl's session is an episode played by an `EpisodeRunner`,
with its retries. What every episode of a process shares (environments, slots, templates) is
built once, by `EpisodeService`. A run has one such process or several, as
`config.agent_loops` decides: slots, environment processes and records on their way are
shares of the run's, and of the token pieces that several hand over the store keeps the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase
from verl.experimental.agent_loop import AgentLoopOutput
from verl.workers.rollout.llm_server import LLMServerClient

from longhaul_core.errors import ConfigError
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    Responder,
    episode_seed,
)
from longhaul_core.store.records import FATE_OF_GROUP, EpisodeRecord, Phase, TokenPieces
from longhaul_core.types import FailedEpisode, Task, Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.play.imitation.player import DemonstrationPlayer
from longhaul_trainer.play.players import EnvironmentPlayer, Player, limits_of
from longhaul_trainer.play.programs.player import ProgramPlayer
from longhaul_trainer.play.reward_shaping import load_reward_shaping, shaped_by
from longhaul_trainer.play.runners.server import Runners
from longhaul_trainer.rendering.marks import finder_of_marks
from longhaul_trainer.rendering.pictures import PictureReader, picture_reader
from longhaul_trainer.rendering.pieces import token_pieces
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from longhaul_trainer.run.context import RunContext
from longhaul_trainer.training.merging import metadata_of, with_choices, with_spelled_marks
from longhaul_trainer.training.step_metadata import GroupName
from longhaul_trainer.training.stopping import EpisodesInFlight, Stopped
from longhaul_trainer.verl.engine_policy import EnginePolicy
from longhaul_trainer.verl.rows import to_rows
from longhaul_trainer.verl.run_recorder import MAX_PENDING, RunRecorder

GREEDY_SESSION = "greedy_session"
"""Column of verl's prompts: the session that plays the greedy episode beside a group."""

DEMONSTRATION_SESSIONS = "demonstration_sessions"
"""The same: the first of the sessions that play stored episodes again beside a group."""

LONGEST_UPDATE_SECONDS = 24 * 3600.0
"""How long a reply may wait for the learner in asynchronous rollout: an update takes its time, and
is no failure of the episode."""


class EpisodeService:
    """What the episodes of one process share."""

    def __init__(
        self,
        run_context: RunContext,
        server: LLMServerClient,
        tokenizer: PreTrainedTokenizerBase,
        *,
        processor: object = None,
        agent_loop: AgentLoop | None = None,
        folder: Path | None = None,
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
            concurrency=agent_loop.share(
                run.rollout.concurrent_episodes, unit=run.episodes_of_a_group
            ),
            max_retries=run.rollout.max_retries if run.rollout.on_failure == "retry" else 0,
        )
        self._tokenizer = tokenizer
        self._spells_mark = finder_of_marks(tokenizer)
        self._pictures = picture_reader(processor, grey=run.model.pictures == "grey")
        self._texts = TokenTexts(tokenizer, run_id=run_context.run_id)
        shaping = run.algorithm.reward_shaping
        self._shaping = None if shaping is None else load_reward_shaping(shaping)
        self._entries = {entry.id: entry for entry in run.played_environments}
        self._player = self._player_of(server, agent_loop, folder)

    def _player_of(
        self, server: LLMServerClient, agent_loop: AgentLoop, folder: Path | None
    ) -> Player:
        run = self.run
        if run.agent.is_program:
            responder = self._responder_for("", server)
            return ProgramPlayer(
                run, responder=responder, runners=self._runners(agent_loop, folder)
            )
        prefixes = {entry.prompt.reply_prefix for entry in run.played_environments}
        player = EnvironmentPlayer(
            run,
            # Environments may be a thousand; what they are rendered with knows the vocabulary.
            responders={prefix: self._responder_for(prefix, server) for prefix in prefixes},
            descriptions=self.run_context.descriptions,
            agent_loop=agent_loop,
        )
        if self.run_context.demonstrations is None:
            return player
        return DemonstrationPlayer(self.run_context, player)

    def _runners(self, agent_loop: AgentLoop, folder: Path | None) -> Runners | None:
        """Who play on other machines; None where programs are started here."""
        if self.run.agent.kind != "remote":
            return None
        if folder is None:
            raise ValueError("runners find each other's gateways in the run's folder; give it")
        return Runners(
            self.run,
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            commit=self.recorder.commit,
            folder=folder,
            agent_loop=agent_loop,
        )

    def _responder_for(self, reply_prefix: str, server: LLMServerClient) -> Responder:
        """The responder to prompts that end with this prefix, as in training."""
        rollout = self.run.rollout
        return responder_of(
            self.run,
            server,
            self._tokenizer,
            pictures=self._pictures,
            reply_prefix=reply_prefix,
            temperature=rollout.temperature,
            top_p=rollout.top_p,
        )

    def limits(self, environment_id: str, horizon: int) -> EpisodeLimits:
        """Limits of an episode of this environment with this horizon."""
        limits = limits_of(self.run, self._entries[environment_id], horizon=horizon)
        if self.run.trainer.mode == "sync":
            return limits
        patience = limits.policy_deadline_seconds + LONGEST_UPDATE_SECONDS
        return replace(limits, policy_deadline_seconds=patience)

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
            play_once = partial(
                self._player.play,
                phase=phase,
                training_step=training_step,
                limits=self.limits(task.environment, horizon),
                with_final_prompt=run.algorithm.uses_critic and phase == "train",
                stop=stop,
            )
            last = await self._runner.play(spec, play_once, on_try=store)
        if isinstance(last.outcome, FailedEpisode):
            return []
        rewards, problem = self._shaped(last.outcome) if phase == "train" else (None, "")
        metadata = metadata_of(
            last.outcome,
            group=GroupName(training_step, group_index),
            retry=last.spec.retry,
            phase=phase,
            anchor_texts=run.algorithm.anchor_similarity is not None,
            hook_rewards=rewards,
            hook_error=problem,
        )
        if run.imitation.compares_steps:
            metadata = with_choices(metadata, last.outcome)
        metadata = with_spelled_marks(metadata, last.outcome, spells_mark=self._spells_mark)
        # Beside the event loop, as all that goes through every token of an episode.
        return await asyncio.to_thread(
            to_rows,
            last.outcome,
            metadata=metadata,
            training_step_of=run.training_step_of,
            form=run.optimizer.rows,
            max_row_tokens=run.optimizer.max_row_tokens,
            pictures=self._pictures,
            trains=phase in FATE_OF_GROUP,
        )

    async def imitate(
        self, *, training_step: int, group_index: int, place: int
    ) -> list[AgentLoopOutput]:
        """Play a stored episode again beside a group; see `RunContext.demonstration`."""
        task, _ = self.run_context.demonstration(
            training_step, group_index=group_index, place=place
        )
        return await self.play(
            task,
            phase="demonstration",
            training_step=training_step,
            group_index=group_index,
            sample_index=place,
            horizon=self.run.horizon_of(task.environment, scheduled=self.run.rollout.horizon),
        )

    async def close(self) -> None:
        """End what plays: worker processes of environments, or a gateway."""
        await self._player.close()

    async def _store(self, result: EpisodeResult, *, phase: Phase, training_step: int) -> None:
        """Wait until the store has a try.

        The trainer then reports on its rows, maybe from another process, and a report is not held
        back until the store has what it is about.
        """
        record = EpisodeRecord(
            run_id=self.run_context.run_id,
            attempt=self.run_context.attempt,
            phase=phase,
            training_step=training_step,
            group_index=result.spec.group_index,
            retry=result.spec.retry,
            outcome=result.outcome,
            group_size=self._group_size(result.outcome.task, phase),
        )
        await self.recorder.commit([*await self._texts.new_in(result.outcome), record])

    def _group_size(self, task: Task, phase: Phase) -> int:
        """Episodes that were requested of a task."""
        demonstrations = self.run_context.demonstrations
        if phase == "train" and demonstrations is not None and self.run.imitation.imitates:
            return demonstrations.num_of(task)
        sizes = {
            "train": self.run.rollout.group_size,
            "baseline": 1,
            "demonstration": self.run.imitation.beside_each_group,
        }
        return sizes.get(phase, self.run.validation.samples_per_task)

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


def responder_of(
    run: RunConfig,
    server: LLMServerClient,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pictures: PictureReader | None = None,
    reply_prefix: str = "",
    temperature: float,
    top_p: float,
) -> Responder:
    """The run's model, as prompts of this process ask it.

    Args:
        run: The run.
        server: Its engines.
        tokenizer: Of the model.
        pictures: Of a model that reads them; None for one of text.
        reply_prefix: What prompts end with.
        temperature: Where a call does not say; 0 is greedy.
        top_p: The same, above 0 and at most 1.
    """
    renderer = ChatTemplateRenderer(
        tokenizer,
        reply_prefix=reply_prefix,
        pictures=pictures,
        leaves_pictures_out=run.model.pictures == "never",
        template=run.model.chat_template,
        variables=run.model.chat_template_kwargs,
    )
    return Responder(
        policy=EnginePolicy(
            server,
            renderer,
            end_token=cast("int | None", tokenizer.eos_token_id),
            policy_version=run.policy_version,
            seeded=run.rollout.reproducibility == "exact",
            pictures=pictures,
        ),
        renderer=renderer,
        temperature=temperature,
        top_p=top_p,
        max_reply_tokens=run.rollout.max_reply_tokens,
    )


class TokenTexts:
    """The text of tokens, each handed over once by a process."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, run_id: str) -> None:
        """Know of none yet."""
        self._tokenizer = tokenizer
        self._run_id = run_id
        self._known: set[int] = set()

    async def new_in(self, outcome: Trajectory | FailedEpisode) -> list[TokenPieces]:
        """A record of the tokens that no episode before had; none where there is none."""
        new = await asyncio.to_thread(_tokens_of, outcome) - self._known
        if not new:
            return []
        self._known |= new
        return [TokenPieces(run_id=self._run_id, pieces=token_pieces(self._tokenizer, sorted(new)))]


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


async def close_services() -> None:
    """End what plays in this process: worker processes of environments, or a gateway."""
    while _services:
        await _services.popitem()[1].close()


class EpisodeAgentLoop:
    """What verl instantiates for each session; `run` plays the session's episode."""

    def __init__(
        self,
        *,
        run_context: str,
        server_manager: LLMServerClient,
        tokenizer: PreTrainedTokenizerBase,
        processor: object = None,
        **others: object,
    ) -> None:
        if run_context not in _services:
            _services[run_context] = EpisodeService(
                RunContext.read(Path(run_context)),
                server_manager,
                tokenizer,
                processor=processor,
                agent_loop=this_process(),
                folder=Path(run_context).parent,
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
        """Play the episode at place `session_id` of the task's group, or one beside it."""
        first = cast("int | None", others.get(DEMONSTRATION_SESSIONS))
        if first is not None and session_id >= first:
            return await self._service.imitate(
                training_step=training_step, group_index=group_index, place=session_id - first
            )
        is_greedy = session_id == others.get(GREEDY_SESSION)
        return await self._service.play(
            task,
            phase="baseline" if is_greedy else phase,
            training_step=training_step,
            group_index=group_index,
            sample_index=0 if is_greedy else session_id,
            horizon=horizon,
        )
