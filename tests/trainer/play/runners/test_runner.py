"""Runners as processes of their own, over HTTP: they play, die, hang, lose replies and stop."""

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from environment_server import lossy_proxy
from longhaul_core.rollout import EpisodeLimits, EpisodeOutcome
from longhaul_core.types import FailedEpisode, FailureCause, Trajectory
from other_processes import command_of, runs
from runner_house import (
    LOST_SECONDS,
    RemoteHouse,
    RunningRunner,
    running,
    until,
    waiting_runners,
)

pytestmark = pytest.mark.slow

LONG = EpisodeLimits(horizon=10_000, max_prompt_tokens=4_096)


@pytest.fixture(scope="module")
def house() -> Iterator[RemoteHouse]:
    with RemoteHouse.open() as house:
        assert isinstance(house, RemoteHouse)
        yield house


@pytest.fixture(autouse=True)
def nobody_waits(house: RemoteHouse) -> None:
    """The event loop stood still when the runners of the test before were killed."""
    house.run(until("they are gone", lambda: not waiting_runners(house.leases)))


def below(runner: RunningRunner) -> list[psutil.Process]:
    return psutil.Process(runner.process.pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if runs(one)]


def programs_of(runner: RunningRunner) -> list[psutil.Process]:
    """The commands that it has started."""
    return [one for one in alive(below(runner)) if "faulty_program" in command_of(one)]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def lost(outcome: EpisodeOutcome) -> FailedEpisode:
    assert isinstance(outcome, FailedEpisode), outcome
    assert outcome.cause is FailureCause.RUNNER_LOST
    return outcome


def test_a_runner_plays_and_what_its_program_left_is_the_episodes(
    house: RemoteHouse, tmp_path: Path, quick_python: str
) -> None:
    async def play() -> list[EpisodeOutcome]:
        playing = [
            house.play_remotely("play", 3, sample_index=0),
            house.play_remotely("play_paid", 2, sample_index=1),
            house.play_remotely("crash_between", sample_index=2),
            house.play_remotely("hang_after_call", sample_index=3, deadline_seconds=8),
            house.play_remotely("no_reward", sample_index=4),
            house.play_remotely("go_on_after_done", sample_index=5),
        ]
        return await asyncio.gather(*playing)

    options = ("--concurrency", "4", "--name", "one")
    with running(house.gateway.address, *options, log=tmp_path / "log", python=quick_python):
        solved, paid, crashed, late, unpaid, over = house.run(play())

    assert isinstance(solved, Trajectory), solved
    assert (len(solved.steps), solved.episode_return, solved.success) == (3, 1.0, True)
    assert isinstance(paid, Trajectory), paid
    assert [step.reward for step in paid.steps] == [0.5, 0.5]
    assert isinstance(crashed, FailedEpisode)
    assert crashed.cause is FailureCause.PROGRAM_ERROR
    assert "crashed between calls" in crashed.message
    assert "its exit code is 1" in crashed.message
    assert isinstance(late, FailedEpisode)
    assert late.cause is FailureCause.PROGRAM_TIMEOUT
    assert "waiting for what never comes" in late.message
    assert isinstance(unpaid, FailedEpisode)
    assert "done, I think" in unpaid.message
    assert isinstance(over, Trajectory), over  # ended by the run, since the episode was over
    assert over.episode_return == 1.0
    assert house.noted.count(("one", "returned")) == 6


def test_two_runners_share_the_episodes(
    house: RemoteHouse, tmp_path: Path, quick_python: str
) -> None:
    house.noted.clear()

    async def play() -> list[EpisodeOutcome]:
        some = [house.play_remotely("slow", 0.3, sample_index=place) for place in range(12)]
        return await asyncio.gather(*some)

    def sharing(name: str) -> AbstractContextManager[RunningRunner]:
        options = ("--concurrency", "4", "--name", name)
        return running(house.gateway.address, *options, log=tmp_path / name, python=quick_python)

    with sharing("one"), sharing("two"):
        house.run(until("all places wait", lambda: len(waiting_runners(house.leases)) == 8))
        outcomes = house.run(play())

    assert all(isinstance(outcome, Trajectory) for outcome in outcomes)
    began = [name for name, outcome in house.noted if outcome is None]
    assert len(began) == 12
    assert min(began.count("one"), began.count("two")) >= 4


def test_a_runner_that_is_killed_loses_its_episode_and_its_program_ends(
    house: RemoteHouse, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    async def play() -> tuple[EpisodeOutcome, list[psutil.Process], float]:
        playing = asyncio.create_task(house.play_remotely("persist", str(calls), limits=LONG))
        await until("it calls", lambda: len(lines_of(calls)) > 2)
        processes = below(runner)
        assert processes
        runner.signal(signal.SIGKILL)
        killed_at = time.monotonic()
        return await playing, processes, time.monotonic() - killed_at

    with running(house.gateway.address, log=tmp_path / "log") as runner:
        outcome, processes, seconds = house.run(play())

    assert f"was not heard of for {LOST_SECONDS:g} s" in lost(outcome).message
    assert (
        LOST_SECONDS / 2 < seconds < LOST_SECONDS + 60
    )  # it was last heard of before it was killed
    house.run(until("all that it started is gone", lambda: not alive(processes)))


def test_a_runner_that_stops_is_lost_and_what_its_program_still_sends_is_refused(
    house: RemoteHouse, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"

    async def play() -> EpisodeOutcome:
        playing = asyncio.create_task(house.play_remotely("persist", str(calls), limits=LONG))
        await until("it calls", lambda: len(lines_of(calls)) > 2)
        runner.signal(signal.SIGSTOP)  # the program goes on
        outcome = await playing
        await until("it is refused", lambda: lines_of(calls).count("no") > 2)
        runner.signal(signal.SIGCONT)
        await until("it has given up", lambda: not programs_of(runner))
        return outcome

    with running(house.gateway.address, "--name", "stops", log=tmp_path / "log") as runner:
        outcome = house.run(play())
        again = house.run(house.play_remotely("play", 1))  # it comes back, and plays on

        assert "an episode is given up" in runner.log
    answered = lines_of(calls).count("yes")
    assert len(lost(outcome).steps) <= answered
    assert isinstance(again, Trajectory), again
    assert house.noted[-1] == ("stops", "returned")


def test_replies_that_are_lost_on_the_way_change_nothing(
    house: RemoteHouse, tmp_path: Path, quick_python: str
) -> None:
    house.noted.clear()
    house.leases.lost_seconds = 20.0  # each lost reply makes a pause
    draw = random.Random(7)

    async def play() -> tuple[list[EpisodeOutcome], int]:
        port = int(house.gateway.address.rpartition(":")[2])
        async with lossy_proxy(lambda: port, loses=lambda: draw.random() < 0.15) as proxy:
            address, options = f"http://127.0.0.1:{proxy.port}", ("--concurrency", "4")
            with running(address, *options, log=tmp_path / "log", python=quick_python):
                some = [house.play_remotely("no_call", sample_index=n) for n in range(24)]
                return await asyncio.gather(*some), proxy.num_lost

    outcomes, num_lost = house.run(play())
    house.leases.lost_seconds = LOST_SECONDS

    # The program itself makes no call here: its own client would not ask again.
    causes = {outcome.cause for outcome in outcomes if isinstance(outcome, FailedEpisode)}
    assert causes == {FailureCause.PROGRAM_ERROR}
    assert num_lost > 5
    assert len(house.noted) == 2 * len(outcomes)  # each was leased once, and returned once


def test_a_wrong_token_ends_the_runner(
    house: RemoteHouse, tmp_path: Path, quick_python: str
) -> None:
    wrong, log = "b" * 20, tmp_path / "log"
    with running(house.gateway.address, log=log, token=wrong, python=quick_python) as runner:
        assert house.run(asyncio.to_thread(runner.ended)) == 2

        assert "401" in runner.log
        assert "LONGHAUL_RUNNER_TOKEN" in runner.log


def test_on_sigterm_a_runner_ends_what_it_plays_and_leases_nothing_more(
    house: RemoteHouse, tmp_path: Path
) -> None:
    house.noted.clear()

    async def play() -> EpisodeOutcome:
        playing = asyncio.create_task(house.play_remotely("slow", 1.5))
        await until("it plays", lambda: programs_of(runner))
        runner.signal(signal.SIGTERM)
        outcome = await playing
        later = asyncio.create_task(house.play_remotely("play", 1))
        await asyncio.sleep(0.5)
        assert not house.leases.held
        later.cancel()
        return outcome

    with running(house.gateway.address, log=tmp_path / "log") as runner:
        outcome = house.run(play())

        assert house.run(asyncio.to_thread(runner.ended)) == 0
        assert "played 1 episodes" in runner.log
    assert isinstance(outcome, Trajectory), outcome


def test_a_second_ctrl_c_hands_the_episode_back_at_once(house: RemoteHouse, tmp_path: Path) -> None:
    async def play() -> EpisodeOutcome:
        playing = asyncio.create_task(house.play_remotely("slow", 600, deadline_seconds=600))
        await until("it plays", lambda: programs_of(runner))
        runner.signal(signal.SIGINT)
        await until("it is stopping", lambda: "stopping" in runner.log)
        runner.signal(signal.SIGINT)
        return await playing

    with running(house.gateway.address, log=tmp_path / "log") as runner:
        began = time.monotonic()
        outcome = house.run(play())

        assert house.run(asyncio.to_thread(runner.ended)) == 0
    assert "handed the episode back" in lost(outcome).message
    assert time.monotonic() - began < 120
    assert house.noted[-1][1] == "handed_back"


def test_a_runner_ends_when_no_run_is_there_for_too_long(tmp_path: Path, quick_python: str) -> None:
    nobody, options = "http://127.0.0.1:9", ("--unreachable-seconds", "1")  # `discard`'s port

    with running(nobody, *options, log=tmp_path / "log", python=quick_python) as runner:
        assert runner.ended() == 3
        assert "no gateway answered for 1 s" in runner.log
