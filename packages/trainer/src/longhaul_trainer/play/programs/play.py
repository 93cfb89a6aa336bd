"""One episode, played by a program, from its start to its record.

The program is started with an address and a key of its own, calls the gateway as it likes, and
ends. What it printed, returned or posted is its reward, or a grader of the run says it. Like
`run_episode`, nothing here raises for an episode's failure.
"""

import asyncio
from collections.abc import Mapping

from longhaul_core.errors import (
    EpisodeError,
    ProgramFailure,
    ProgramLimit,
    ProgramTimeout,
    RunnerLost,
)
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeSession,
    EpisodeSpec,
    Responder,
)
from longhaul_core.rollout.stopping import until_stopped
from longhaul_core.types import StopReason, Trajectory
from longhaul_trainer.gateway.episode import CallRules, OpenEpisode
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.task_data import task_data
from longhaul_trainer.gateway.upstream import Upstream
from longhaul_trainer.play.programs.grader import Graded, Grader
from longhaul_trainer.play.programs.program import Endpoint, Leavings, Program
from longhaul_trainer.play.programs.result import Result, printed_result, result_of

__all__ = ["SOLVED_RETURN", "play_program"]

SOLVED_RETURN = 1.0
"""An episode whose success nobody states counts as solved where its rewards add up to this."""


async def play_program(  # noqa: PLR0913 - what an episode is played with
    spec: EpisodeSpec,
    *,
    program: Program,
    gateway: Gateway,
    models: Mapping[str, Responder | Upstream],
    rules: CallRules,
    limits: EpisodeLimits,
    grader: Grader | None = None,
    stop: asyncio.Event | None = None,
) -> EpisodeOutcome:
    """Let a program play one episode, and return its record.

    A limit of ours on steps or tokens refuses later calls and truncates the episode, which is a
    `Trajectory` however the program took it, if its reward is known; the program has then
    `close_deadline_seconds` to end, as after it reported that it is done.

    Args:
        spec: The task, the seed and the place in the group.
        program: Plays it; it has ended, with all that it started, before this returns.
        gateway: Answers its calls; running, on this event loop.
        models: See `Gateway.open`.
        rules: What the calls may ask for.
        limits: Bounds of the episode.
        grader: Scores the episode instead of the program; None for what the program reports.
        stop: Once it is set the program is ended; None for an episode that nobody stops.

    Returns:
        A `Trajectory` if the program ended and its reward is known, a `FailedEpisode` if something
        broke, missed its deadline, went beyond a limit of the program, left no reward, or was
        stopped.
    """
    session = EpisodeSession(spec, limits=limits)
    opened = gateway.open(session, models=models, rules=rules, task=spec.task)
    episode = _Episode(session, opened, spec=spec, limits=limits, grader=grader)
    try:
        playing = episode.play(program)
        return await (playing if stop is None else until_stopped(playing, stop))
    except EpisodeError as failure:
        return session.failed(failure)
    finally:
        await opened.close()


class _Episode:
    """A program that drives a session through the gateway."""

    def __init__(
        self,
        session: EpisodeSession,
        opened: OpenEpisode,
        *,
        spec: EpisodeSpec,
        limits: EpisodeLimits,
        grader: Grader | None,
    ) -> None:
        self._session = session
        self._opened = opened
        self._spec = spec
        self._limits = limits
        self._grader = grader

    async def play(self, program: Program) -> Trajectory:
        """Run the program to its end; `EpisodeError` reports what failed."""
        opened = self._opened
        enough = asyncio.Event()
        over = asyncio.create_task(self._over(enough))
        endpoint = Endpoint(
            environ=opened.environ(),
            report=opened.report,
            report_reward=lambda value, success: opened.report_reward(value, success=success),
        )
        self._session.restart_clock()
        has_ended = False
        try:
            async with program.run(self._spec.task, endpoint=endpoint, enough=enough) as leavings:
                has_ended = True
                await opened.close()
                return await self._record(leavings)
        except (ProgramLimit, RunnerLost):
            raise
        except ProgramFailure as failure:
            if has_ended:  # what it left is no reward
                raise
            await opened.close()
            if opened.failure is not None:  # it failed because we did
                raise opened.failure from failure
            if opened.limit is None or isinstance(failure, ProgramTimeout):
                raise
            return await self._record(Leavings())  # a function that let our refusal pass
        finally:
            over.cancel()

    async def _over(self, enough: asyncio.Event) -> None:
        """Say so when the episode is over, and its program had time to end."""
        await self._opened.wait_done()
        await asyncio.sleep(self._limits.close_deadline_seconds)
        enough.set()

    async def _record(self, leavings: Leavings) -> Trajectory:
        """The record of an episode whose program has ended."""
        self._require_sound(leavings)
        if self._grader is None:
            result = self._reported(leavings)
        else:
            result = await self._graded(self._grader, leavings)
        self._pay(result)
        limit = self._opened.limit
        unsolved = StopReason.TASK_FAILED if limit is None else limit.stop_reason
        scored = result.reward is not None or result.success is True
        trajectory = self._session.end(unsolved, success=False, scored=scored)
        success = result.success
        if success is None:
            success = trajectory.episode_return >= SOLVED_RETURN
        if not success:
            return trajectory
        solved = StopReason.TASK_SOLVED if limit is None else limit.stop_reason
        return self._session.end(solved, success=True, scored=scored)

    def _require_sound(self, leavings: Leavings) -> None:
        """Refuse an episode without a step, and one that failed, by itself or with the engine.

        Raises:
            EpisodeError: The engine failed to answer a call, and no repetition made it good. What
                the program did without the answer is not the policy's doing.
            ProgramFailure: No call of it was answered, or it ended with an exit code other than 0
                though it had met no limit of ours.
            ProgramLimit: It met a limit before its first step.
        """
        if self._opened.failure is not None:
            raise self._opened.failure
        limit = self._opened.limit
        if self._session.num_steps == 0:
            if limit is not None:
                raise ProgramLimit(f"{limit}, before the first step{_ending(leavings)}")
            raise ProgramFailure(f"it made no call that was answered{_ending(leavings)}")
        if leavings.exit_code and limit is None:
            raise ProgramFailure(f"it failed{_ending(leavings)}")

    def _reported(self, leavings: Leavings) -> Result:
        """What the program says the episode was worth, by whatever way.

        Raises:
            ProgramFailure: It says nothing, says what is no reward, or contradicts itself.
            ProgramLimit: It says nothing, since it met a limit of ours.
        """
        posted = self._opened.reported
        try:
            said = printed_result(leavings.printed) or result_of(leavings.result)
        except ValueError as error:
            raise ProgramFailure(f"{error}{_ending(leavings)}") from error
        said = Result() if said is None else said
        paid = (said.reward, posted.reward, said.step_rewards or None)
        if paid == (None, None, None) and not posted.num_step_rewards:
            if (limit := self._opened.limit) is not None:
                raise ProgramLimit(f"{limit}, and it left no reward{_ending(leavings)}")
            raise ProgramFailure(
                'it left no reward: print a number or {"reward": ...} as the last line of '
                f"standard output, return it, or post it{_ending(leavings)}"
            )
        for name, one, other in (
            ("reward", said.reward, posted.reward),
            ("success", said.success, posted.success),
        ):
            if None not in (one, other) and one != other:
                raise ProgramFailure(
                    f"it posted {name} = {other}, and its result says {one}; leave one of them out"
                )
        if said.step_rewards and posted.num_step_rewards:
            raise ProgramFailure(
                f"it reported the rewards of {posted.num_step_rewards:,} steps, and its result has "
                "step_rewards; leave one of them out"
            )
        return Result(
            reward=posted.reward if said.reward is None else said.reward,
            success=posted.success if said.success is None else said.success,
            step_rewards=said.step_rewards,
        )

    async def _graded(self, grader: Grader, leavings: Leavings) -> Result:
        """What the grader says the episode was worth, whatever the program says."""
        limit = self._opened.limit
        task = self._spec.task
        return await grader(
            Graded(
                task=task,
                data=task_data(task),
                trajectory=self._session.end(
                    StopReason.TASK_FAILED if limit is None else limit.stop_reason, success=False
                ),
                posted=self._opened.reported,
                leavings=leavings,
            )
        )

    def _pay(self, result: Result) -> None:
        """Add what a result says to the steps' rewards.

        Raises:
            ProgramFailure: It has rewards for another number of steps.
        """
        if result.step_rewards:
            steps = self._session.acted_steps
            if len(result.step_rewards) != len(steps):
                raise ProgramFailure(
                    f"step_rewards has {len(result.step_rewards)} numbers, and the episode "
                    f"{len(steps)} steps; give one for each call that is a step"
                )
            for step_index, reward in zip(steps, result.step_rewards, strict=True):
                self._session.reward(reward, step_index=step_index)
        if result.reward is not None:
            self._session.reward(result.reward)


def _ending(leavings: Leavings) -> str:
    """How a command ended, for a message."""
    code = "" if leavings.exit_code is None else f"; its exit code is {leavings.exit_code}"
    if not leavings.output:
        return f"{code}; it printed nothing" if code else ""
    return f"{code}; the last that it printed:\n{leavings.output}"
