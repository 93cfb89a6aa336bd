"""Programs as players of a run's episodes: what they share in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from longhaul_core.errors import ConfigError
from longhaul_core.rollout import EpisodeLimits, EpisodeOutcome, EpisodeSpec, Responder
from longhaul_core.store.records import Phase
from longhaul_core.types import FailedEpisode, FailureCause, Trajectory, pictures_of
from longhaul_trainer.config import RunConfig
from longhaul_trainer.gateway.episode import CallRules
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.upstream import Upstream
from longhaul_trainer.play.players import PHASES, temperature_of, top_p_of
from longhaul_trainer.play.programs.of_run import grader_of, program_of, upstreams_of
from longhaul_trainer.play.programs.play import play_program
from longhaul_trainer.play.programs.program import Program
from longhaul_trainer.play.runners.server import Runners


class ProgramPlayer:
    """Plays a run's episodes by its program, behind a gateway of this process. A `Player`."""

    def __init__(
        self,
        run: RunConfig,
        *,
        responder: Responder | Upstream,
        name: str | None = None,
        runners: Runners | None = None,
    ) -> None:
        """Look the program up; neither it nor the gateway is started yet.

        Args:
            run: The run.
            responder: The policy as in training, its renderer a `ChatRenderer`; or a hosted model
                in its place, which draws its replies as the program asks.
            name: What the policy is called beside `auto`; None for the name of the run's model.
            runners: Who play on other machines; None where the program is started here.

        Raises:
            ConfigError: The program or the grader is not there, or an upstream has no key or the
                policy's name.
        """
        self._name = Path(run.model.path).name if name is None else name
        self._upstreams = upstreams_of(run)
        if self._name in self._upstreams:
            raise ConfigError(
                f"agent.upstreams.{self._name} has the name of the run's own model; give it another"
            )
        self._run = run
        self._runners = runners
        self._program = program_of(run) if runners is None else None
        self._grader = grader_of(run)
        self._gateway = Gateway() if runners is None else runners.gateway
        self._starting = asyncio.Lock()
        self._is_started = False
        self._responders: dict[Phase, Responder | Upstream] = {
            phase: replace(
                responder,
                temperature=temperature_of(run, phase),
                top_p=top_p_of(run, phase),
            )
            if isinstance(responder, Responder)
            else responder
            for phase in PHASES
        }

    async def play(
        self,
        spec: EpisodeSpec,
        *,
        phase: Phase,
        training_step: int,
        limits: EpisodeLimits,
        with_final_prompt: bool,
        stop: asyncio.Event,
    ) -> EpisodeOutcome:
        """See `Player.play`.

        An episode whose rows would be empty, because no call of the policy is trained, is none
        that can be learned from: it failed (decision 37).
        """
        await self._start()
        outcome = await play_program(
            spec,
            program=self._program_for(spec, phase=phase, training_step=training_step),
            gateway=self._gateway,
            models=self._models(phase),
            rules=self._rules(phase, keeps_final_prompt=with_final_prompt),
            limits=limits,
            grader=self._grader,
            stop=stop,
        )
        if phase in ("train", "baseline"):
            outcome = _learnable(outcome)
        if with_final_prompt and isinstance(outcome, Trajectory):
            return _with_final_prompt(outcome)
        return outcome

    async def close(self) -> None:
        """End the gateway, and what serves all episodes."""
        if self._program is not None:
            await self._program.close()
        if self._is_started:
            await (self._runners or self._gateway).stop()
        for upstream in self._upstreams.values():
            await upstream.close()

    async def _start(self) -> None:
        async with self._starting:
            if not self._is_started:
                await (self._runners or self._gateway).start()
                self._is_started = True

    def _models(self, phase: Phase) -> Mapping[str, Responder | Upstream]:
        """Who answers, by name: the policy, which comes first, and the run's upstreams."""
        policy = self._responders[phase]
        names = (self._name, *self._run.agent.policy_names)
        return {**dict.fromkeys(names, policy), **self._upstreams}

    def _program_for(self, spec: EpisodeSpec, *, phase: Phase, training_step: int) -> Program:
        """The one program of the run, or one of this episode, which a runner plays."""
        if self._runners is None:
            assert self._program is not None
            return self._program
        return self._runners.program(spec, phase=phase, training_step=training_step)

    def _rules(self, phase: Phase, *, keeps_final_prompt: bool) -> CallRules:
        agent = self._run.agent
        return CallRules(
            trains=phase in ("train", "baseline"),
            allows_sampling=agent.allow_sampling,
            altered=agent.altered,
            max_calls=agent.max_calls,
            kinds=agent.calls,
            keeps_final_prompt=keeps_final_prompt,
        )


def _with_final_prompt(trajectory: Trajectory) -> Trajectory:
    """The episode with a prompt to value its end by, if a limit cut it short and none scored it.

    That is the prompt of the policy that the limit refused. Where it refused another model's call,
    nobody knows what the policy would have read, and the newest prompt that it did read stands
    for that.
    """
    has_more = trajectory.stop_reason.truncated and not trajectory.scored
    if not has_more or trajectory.final_prompt_tokens is not None:
        return trajectory
    newest = next(
        (
            (call.sampled.prompt_tokens, pictures_of(call.messages))
            for step in reversed(trajectory.steps)
            for call in reversed(step.calls)
            if call.trained and call.sampled is not None
        ),
        None,
    )
    if newest is None:
        return trajectory
    tokens, pictures = newest
    return replace(trajectory, final_prompt_tokens=tokens, final_prompt_pictures=pictures)


def _learnable(outcome: EpisodeOutcome) -> EpisodeOutcome:
    """The episode, or a failed one in place of one without a trained call."""
    if isinstance(outcome, FailedEpisode) or any(
        call.trained for step in outcome.steps for call in step.calls
    ):
        return outcome
    num_calls = sum(len(step.calls) for step in outcome.steps)
    return FailedEpisode(
        task=outcome.task,
        sample_index=outcome.sample_index,
        seed=outcome.seed,
        horizon=outcome.horizon,
        cause=FailureCause.PROGRAM_ERROR,
        message=(
            f"none of the {num_calls} calls is one of the policy that is trained, so there is "
            "nothing to learn from; let the program ask the model `auto`, and leave `train` true "
            "for the calls that are the agent's own"
        ),
        steps=outcome.steps,
        started_at=outcome.started_at,
        duration_seconds=outcome.duration_seconds,
    )
