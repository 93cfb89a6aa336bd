"""Environments in threads."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fakes import FAILING_CALLS, make_agent, make_task
from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec, ThreadEnvironment, thread_environments
from longhaul_core.rollout import EpisodeLimits, EpisodeSpec, run_episode
from longhaul_core.types import FailedEpisode, FailureCause


def counting(**options: object) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id="fakes/Counting-v0", options=options, import_modules=("fakes",)
    )


def num_threads() -> int:
    return sum(thread.name == "longhaul-environment" for thread in threading.enumerate())


async def until_no_thread_is_left() -> None:
    for _ in range(6_000):
        if not num_threads():
            return
        await asyncio.sleep(0.01)
    pytest.fail("a thread is left")


def test_an_episode_in_a_thread_is_what_gymnasium_would_give() -> None:
    async def main() -> None:
        environment = ThreadEnvironment(counting(target=1).make)
        await environment.open()
        first = await environment.reset(make_task(7))
        assert (first.text, first.admissible_actions) == ("train/00007: 7", ("count", "stop"))
        assert not (await environment.step("jump")).action_accepted
        await environment.step("count")
        end = await environment.step("stop")
        assert (end.reward, end.terminated, end.success) == (1.0, True, True)
        await environment.close()
        await environment.close()
        await until_no_thread_is_left()

    asyncio.run(main())


@pytest.mark.parametrize(("misbehave", "message"), FAILING_CALLS)
def test_what_an_environment_raises_is_attributed_to_it(misbehave: str, message: str) -> None:
    async def main() -> None:
        environment = ThreadEnvironment(counting(misbehave=misbehave).make)
        await environment.open()
        await environment.reset(make_task())
        with pytest.raises(EnvironmentFailure) as caught:
            await asyncio.wait_for(environment.step("count"), timeout=60)
        assert str(caught.value) == f"environment.step: {message}"
        await environment.close()
        await until_no_thread_is_left()

    asyncio.run(main())


def test_closing_before_opening_is_harmless_and_playing_before_it_is_refused() -> None:
    async def main() -> None:
        environment = thread_environments(counting())(make_task())
        await environment.close()
        with pytest.raises(RuntimeError, match="not open"):
            await environment.reset(make_task())

    asyncio.run(main())


HANGING_PROGRAM = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from core.gym.test_thread import play_hanging_episode

asyncio.run(play_hanging_episode())
sys.stdout.write("ended")
"""


async def play_hanging_episode() -> None:
    outcome = await run_episode(
        EpisodeSpec(task=make_task(), seed=0),
        agent=make_agent(),
        make_environment=thread_environments(counting(misbehave="hang")),
        limits=EpisodeLimits(horizon=3, max_prompt_tokens=1000, step_deadline_seconds=0.1),
    )
    assert isinstance(outcome, FailedEpisode)
    assert outcome.cause is FailureCause.ENVIRONMENT_TIMEOUT
    assert num_threads() == 1


def test_a_hung_thread_fails_its_episode_and_does_not_keep_the_program_from_ending() -> None:
    script = HANGING_PROGRAM.format(tests=str(Path(__file__).parents[2]))
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=120, check=False
    )
    assert ended.stdout == b"ended", ended.stderr.decode()
    assert b"left behind" in ended.stderr
