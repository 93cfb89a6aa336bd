"""Tests for `longhaul_trainer.training.stopping`: groups in flight, stopped from outside."""

import asyncio
from dataclasses import replace

from longhaul_core.types import FailureCause
from longhaul_trainer.training.stopping import EpisodesInFlight, Stopped
from store_samples import make_failure, make_trajectory


def test_all_episodes_of_a_stopped_group_are_told_and_no_others() -> None:
    async def play() -> None:
        flights = EpisodesInFlight()
        with flights.playing("a") as first, flights.playing("a") as second:
            with flights.playing("b") as other:
                flights.stop(["a"])
                assert first.is_set()
                assert second.is_set()
                assert not other.is_set()

    asyncio.run(play())


def test_an_episode_that_begins_after_its_group_was_stopped_is_told_at_once() -> None:
    async def play() -> None:
        flights = EpisodesInFlight()
        flights.stop(["a"])
        with flights.playing("a") as stop:
            assert stop.is_set()
        with flights.playing("a") as again:
            assert again.is_set()

    asyncio.run(play())


def test_what_was_stopped_is_counted_by_group_and_nothing_else_is() -> None:
    flights = EpisodesInFlight()
    broken = make_failure()
    stopped = replace(broken, cause=FailureCause.STOPPED_EARLY)
    sampled = [call.sampled for step in stopped.steps for call in step.calls]
    cost = sum(len(s.prompt_tokens) + len(s.action_tokens) for s in sampled if s is not None)
    assert cost > 0

    for outcome in (stopped, stopped, broken, make_trajectory()):
        flights.note("a", outcome)
    flights.note("b", broken)

    assert flights.stop(["a", "b"]) == {"a": Stopped(num_episodes=2, num_tokens=2 * cost)}


def test_groups_that_were_stopped_are_forgotten_when_it_is_said_again() -> None:
    async def play() -> None:
        flights = EpisodesInFlight()
        with flights.playing("a"):
            flights.stop(["a", "elsewhere"])
            flights.stop(["a"])
            flights.note("a", replace(make_failure(), cause=FailureCause.STOPPED_EARLY))
        assert flights.stop(["a", "elsewhere"])["a"].num_episodes == 1

        assert not flights._stops
        assert not flights._stopped

    asyncio.run(play())


def test_a_process_forgets_groups_that_nobody_stopped() -> None:
    async def play() -> None:
        flights = EpisodesInFlight()
        for number in range(3):
            with flights.playing(f"group {number}"):
                pass
        assert not flights._stops
        assert not flights._num_playing

    asyncio.run(play())
