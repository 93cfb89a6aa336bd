"""Many episodes at once."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from itertools import count

import pytest

from fakes import FailingEnvironment, ScriptedEnvironment, make_agent, make_task
from longhaul_core.environment import Environment, EnvironmentFactory
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import (
    EpisodeLimits,
    EpisodeResult,
    EpisodeRunner,
    EpisodeSpec,
    retry_seed,
)
from longhaul_core.types import Task, Trajectory

LIMITS = EpisodeLimits(horizon=5, max_prompt_tokens=1000)


def runner(make_environment: EnvironmentFactory, *, concurrency: int = 4) -> EpisodeRunner:
    return EpisodeRunner(
        agent=make_agent(),
        make_environment=make_environment,
        limits=LIMITS,
        concurrency=concurrency,
    )


def specs(num_episodes: int) -> list[EpisodeSpec]:
    return [EpisodeSpec(task=make_task(number), seed=number) for number in range(num_episodes)]


async def collected(episode_runner: EpisodeRunner, num_episodes: int) -> list[EpisodeResult]:
    return [result async for result in episode_runner.run(specs(num_episodes))]


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


def test_every_episode_is_played_once_and_no_more_than_asked_are_in_flight() -> None:
    gauge = Gauge()
    results = asyncio.run(collected(runner(gauge, concurrency=4), 25))
    assert sorted(result.spec.task.seed for result in results) == list(range(25))
    assert gauge.most_open == 4
    assert gauge.num_open == 0


def test_a_quick_episode_does_not_wait_for_a_slow_one() -> None:
    def make(task: Task) -> Environment:
        return ScriptedEnvironment(delay_seconds=0.2 if task.seed == 0 else 0.001)

    results = asyncio.run(collected(runner(make, concurrency=2), 20))
    # The slow one holds one slot; all others pass it in the other one.
    assert [result.spec.task.seed for result in results] == [*range(1, 20), 0]


def test_a_failed_episode_is_played_again_and_every_try_is_told() -> None:
    tries = count()

    def make(task: Task) -> Environment:
        return FailingEnvironment(where="reset") if next(tries) < 2 else ScriptedEnvironment()

    results = asyncio.run(collected(replace(runner(make), max_retries=2), 1))
    assert [(result.spec.retry, result.failed, result.final) for result in results] == [
        (0, True, False),
        (1, True, False),
        (2, False, True),
    ]
    assert [result.outcome.seed for result in results] == [
        retry_seed(0, retry=retry) for retry in range(3)
    ]


def test_an_episode_that_fails_to_the_last_try_is_left_out_with_its_failures() -> None:
    def make(task: Task) -> Environment:
        return FailingEnvironment(where="step")

    results = asyncio.run(collected(replace(runner(make), max_retries=1), 1))
    assert [(result.failed, result.final) for result in results] == [(True, False), (True, True)]


def test_progress_is_told_the_moment_an_episode_ends_even_to_a_busy_reader() -> None:
    async def main() -> None:
        told: list[int] = []
        episodes = runner(lambda task: ScriptedEnvironment()).run(
            specs(6), on_result=lambda result: told.append(result.spec.task.seed)
        )
        async with aclosing(episodes):
            await anext(episodes)
            await asyncio.sleep(0.2)
            assert sorted(told) == list(range(6))

    asyncio.run(main())


def test_an_error_of_the_progress_hook_stops_the_run() -> None:
    def refuse(result: EpisodeResult) -> None:
        raise OSError("disk full")

    gauge = Gauge()

    async def main() -> None:
        async for _ in runner(gauge).run(specs(9), on_result=refuse):
            pass

    with pytest.raises(OSError, match="disk full"):
        asyncio.run(main())
    assert gauge.num_open == 0


def test_leaving_early_cancels_what_is_in_flight_and_starts_no_more() -> None:
    gauge = Gauge(delay_seconds=0.05)

    def endless() -> Iterator[EpisodeSpec]:
        return (EpisodeSpec(task=make_task(number), seed=number) for number in count())

    async def main() -> None:
        async with aclosing(runner(gauge).run(endless())) as results:
            async for result in results:
                assert isinstance(result.outcome, Trajectory)
                break
        assert gauge.num_open == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_fewer_episodes_than_slots_is_fine() -> None:
    assert len(asyncio.run(collected(runner(Gauge(), concurrency=50), 3))) == 3
    assert asyncio.run(collected(runner(Gauge()), 0)) == []


@pytest.mark.parametrize(("field", "value"), [("concurrency", 0), ("max_retries", -1)])
def test_numbers_out_of_range_are_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{field}.*{value}"):
        replace(runner(Gauge()), **{field: value})
