"""Many episodes at once, and again if they fail."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import pytest

from fakes import (
    FailingEnvironment,
    HangingEnvironment,
    ScriptedEnvironment,
    make_agent,
    make_task,
)
from longhaul_core.environment import Environment, EnvironmentFactory
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeOutcome,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    retry_seed,
    run_episode,
)
from longhaul_core.types import FailedEpisode, FailureCause, Task, Trajectory

LIMITS = EpisodeLimits(horizon=5, max_prompt_tokens=1000)


class Tries:
    """Keeps every try in the order in which they end."""

    def __init__(self) -> None:
        self.results: list[EpisodeResult] = []

    async def __call__(self, result: EpisodeResult) -> None:
        self.results.append(result)


def spec(number: int = 0) -> EpisodeSpec:
    return EpisodeSpec(task=make_task(number), seed=number)


def by(
    make_environment: EnvironmentFactory, *, stop: asyncio.Event | None = None
) -> Callable[[EpisodeSpec], Awaitable[EpisodeOutcome]]:
    return partial(
        run_episode,
        agent=make_agent(),
        make_environment=make_environment,
        limits=LIMITS,
        stop=stop,
    )


def scripted(task: Task) -> Environment:
    return ScriptedEnvironment()


def played(
    make_environment: EnvironmentFactory,
    *,
    num_episodes: int = 1,
    concurrency: int = 4,
    max_retries: int = 0,
) -> tuple[list[EpisodeResult], list[EpisodeResult]]:
    """The last try of each episode, and all tries in the order in which they ended."""
    tries = Tries()

    async def play() -> list[EpisodeResult]:
        runner = EpisodeRunner(concurrency=concurrency, max_retries=max_retries)
        return await asyncio.gather(
            *(
                runner.play(spec(number), by(make_environment), on_try=tries)
                for number in range(num_episodes)
            )
        )

    return asyncio.run(play()), tries.results


class Gauge:
    """Makes environments and counts how many are open at once."""

    def __init__(self, *, delay_seconds: float = 0.001) -> None:
        self._delay_seconds = delay_seconds
        self.num_open = 0
        self.most_open = 0

    def __call__(self, task: Task) -> Environment:
        gauge = self

        class Gauged(ScriptedEnvironment):
            async def open(self) -> None:
                gauge.num_open += 1
                gauge.most_open = max(gauge.most_open, gauge.num_open)

            async def close(self) -> None:
                gauge.num_open -= 1

        return Gauged(delay_seconds=self._delay_seconds)


def failing_first(num_failures: int) -> EnvironmentFactory:
    """Environments of which the first ones fail at their reset."""
    tries = count()

    def make(task: Task) -> Environment:
        if next(tries) < num_failures:
            return FailingEnvironment(where="reset")
        return ScriptedEnvironment()

    return make


def test_every_episode_is_played_once_and_no_more_than_asked_are_in_flight() -> None:
    gauge = Gauge()
    results, _ = played(gauge, num_episodes=25, concurrency=4)
    assert [result.spec.task.seed for result in results] == list(range(25))
    assert gauge.most_open == 4
    assert gauge.num_open == 0


def test_a_quick_episode_does_not_wait_for_a_slow_one() -> None:
    def make(task: Task) -> Environment:
        return ScriptedEnvironment(delay_seconds=0.2 if task.seed == 0 else 0.001)

    _, tries = played(make, num_episodes=20, concurrency=2)
    # The slow one holds one slot; all others pass it in the other one.
    assert [result.spec.task.seed for result in tries] == [*range(1, 20), 0]


def test_a_failed_episode_is_played_again_with_another_seed_and_every_try_is_reported() -> None:
    (last,), tries = played(failing_first(2), max_retries=2)
    assert [(one.spec.retry, type(one.outcome)) for one in tries] == [
        (0, FailedEpisode),
        (1, FailedEpisode),
        (2, Trajectory),
    ]
    assert [one.outcome.seed for one in tries] == [retry_seed(0, retry=retry) for retry in range(3)]
    assert last is tries[-1]


def test_an_episode_that_fails_to_the_last_try_returns_its_last_failure() -> None:
    (last,), tries = played(failing_first(9), max_retries=1)
    assert len(tries) == 2
    assert last is tries[-1]
    assert isinstance(last.outcome, FailedEpisode)


def test_a_slot_is_free_while_a_try_is_stored() -> None:
    async def play() -> None:
        runner = EpisodeRunner(concurrency=1)
        others_have_ended = asyncio.Event()

        async def store(result: EpisodeResult) -> None:
            await others_have_ended.wait()

        first = asyncio.create_task(runner.play(spec(), by(scripted), on_try=store))
        async with asyncio.timeout(60):
            await runner.play(spec(1), by(scripted))
            assert not first.done()
            others_have_ended.set()
            await first

    asyncio.run(play())


def test_an_episode_that_is_stopped_is_not_played_again() -> None:
    async def play() -> list[EpisodeResult]:
        tries, stop = Tries(), asyncio.Event()
        runner = EpisodeRunner(concurrency=1, max_retries=3)
        hanging = by(lambda task: HangingEnvironment(where="reset"), stop=stop)
        playing = asyncio.create_task(runner.play(spec(), hanging, on_try=tries))
        await asyncio.sleep(0.01)
        stop.set()
        await playing
        return tries.results

    (only,) = asyncio.run(play())
    assert isinstance(only.outcome, FailedEpisode)
    assert only.outcome.cause is FailureCause.STOPPED_EARLY


def test_what_storing_a_try_raises_passes_and_frees_the_slot() -> None:
    async def refuse(result: EpisodeResult) -> None:
        raise OSError("disk full")

    async def play() -> None:
        runner = EpisodeRunner(concurrency=1)
        with pytest.raises(OSError, match="disk full"):
            await runner.play(spec(), by(scripted), on_try=refuse)
        async with asyncio.timeout(60):
            await runner.play(spec(1), by(scripted))

    asyncio.run(play())


def test_cancelling_an_episode_closes_its_environment_and_frees_its_slot() -> None:
    gauge = Gauge(delay_seconds=0.05)

    async def play() -> None:
        runner = EpisodeRunner(concurrency=1)
        playing = asyncio.create_task(runner.play(spec(), by(gauge)))
        await asyncio.sleep(0.01)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert gauge.num_open == 0
        async with asyncio.timeout(60):
            await runner.play(spec(1), by(gauge))

    asyncio.run(play())


@pytest.mark.parametrize(
    ("concurrency", "max_retries", "message"),
    [(0, 0, "concurrency.*0"), (1, -1, "max_retries.*-1")],
)
def test_numbers_out_of_range_are_refused(concurrency: int, max_retries: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EpisodeRunner(concurrency=concurrency, max_retries=max_retries)
