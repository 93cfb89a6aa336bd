"""Tests for `longhaul_trainer.training.sampling`: which groups are played, taken, kept, dropped."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.training.sampling import (
    PlayedGroup,
    SamplingRules,
    decide,
    first_wave,
    is_enough,
    next_wave,
    still_fresh,
    without_signal,
)
from longhaul_trainer.training.step_metadata import GroupName

RULES = SamplingRules(
    num_groups=4, smallest_group=2, dynamic=True, max_refills=3, extra_tasks=0, max_staleness=0
)
GOOD, FLAT, BROKEN = (0.0, 1.0), (1.0, 1.0, 1.0), (1.0,)


def group(index: int, returns: tuple[float, ...] = GOOD, *, step: int = 3) -> PlayedGroup:
    return PlayedGroup(GroupName(step, index), returns)


def names(*indices: int, step: int = 3) -> tuple[GroupName, ...]:
    return tuple(GroupName(step, index) for index in indices)


@pytest.mark.parametrize(
    ("returns", "equal"),
    [
        ((1.0, 1.0), True),
        ((0.0, 0.0, 0.0), True),
        ((0.1 + 0.2, 0.3), True),  # the same rewards, added up in another order
        ((0.0, 1e-6), False),
        ((1000.0, 1000.0 + 1e-7), True),
        ((-1.0, 1.0), False),
    ],
)
def test_a_group_has_no_signal_where_its_returns_are_equal(
    returns: tuple[float, ...], equal: bool
) -> None:
    assert without_signal(returns) == equal


def test_a_first_wave_asks_for_what_does_not_wait_yet_and_some_more() -> None:
    assert first_wave(RULES, num_waiting=0) == 4
    assert first_wave(RULES, num_waiting=3) == 1
    assert first_wave(replace(RULES, extra_tasks=2), num_waiting=3) == 3
    assert first_wave(replace(RULES, extra_tasks=2), num_waiting=4) == 0


def test_a_refill_expects_the_share_with_a_signal_to_stay() -> None:
    half = [group(0), group(1), group(2, FLAT), group(3, FLAT)]
    none = [group(index, FLAT) for index in range(4)]

    # two are missing, and one of two has a signal: 2 * 6 / 3
    assert next_wave(RULES, num_waiting=0, played=half, num_refills=0) == 4
    assert next_wave(RULES, num_waiting=1, played=half, num_refills=0) == 2
    # more than an update takes are never asked for at once
    assert next_wave(RULES, num_waiting=0, played=none, num_refills=0) == 4


def test_no_refill_comes_after_the_last_nor_where_nothing_is_filtered() -> None:
    flat = [group(index, FLAT) for index in range(4)]

    assert next_wave(RULES, num_waiting=0, played=flat, num_refills=3) == 0
    plain = replace(RULES, dynamic=False, extra_tasks=1)
    assert next_wave(plain, num_waiting=0, played=[group(0, BROKEN)], num_refills=0) == 0


def test_the_oldest_groups_are_taken_first_and_the_rest_is_surplus() -> None:
    played = [group(2), group(0), group(1, FLAT), group(4), group(3, BROKEN), group(5)]

    decision = decide(
        replace(RULES, num_groups=2), training_step=3, waiting=(), played=played, stopped=names(6)
    )

    assert decision.taken == names(0, 2)
    assert decision.waiting == ()
    assert decision.thrown_away == {
        GroupName(3, 1): "no_signal",
        GroupName(3, 3): "too_small",
        GroupName(3, 4): "surplus",
        GroupName(3, 5): "surplus",
        GroupName(3, 6): "stopped_early",
    }


def test_surplus_waits_as_long_as_it_may_and_is_then_too_old() -> None:
    rules = replace(RULES, num_groups=1, max_staleness=1)

    first = decide(
        rules, training_step=3, waiting=(), played=[group(0), group(1), group(2)], stopped=()
    )
    second = decide(rules, training_step=4, waiting=first.waiting, played=(), stopped=())
    third = decide(
        rules, training_step=5, waiting=second.waiting, played=[group(0, step=5)], stopped=()
    )

    assert (first.taken, first.waiting) == (names(0), names(1, 2))
    assert (second.taken, second.waiting) == (names(1), names(2))
    assert third.thrown_away == {GroupName(3, 2): "stale"}
    assert third.taken == names(0, step=5)


def test_without_filtering_equal_returns_are_trained_on() -> None:
    plain = replace(RULES, dynamic=False, num_groups=1)

    assert decide(
        plain, training_step=3, waiting=(), played=[group(0, FLAT)], stopped=()
    ).taken == names(0)
    assert is_enough(plain, num_waiting=0, played=[group(0, FLAT)])
    assert not is_enough(RULES, num_waiting=3, played=[group(0, FLAT)])


@given(
    seed=st.integers(0, 10**6),
    num_groups=st.integers(1, 8),
    max_refills=st.integers(1, 4),
    extra_tasks=st.integers(0, 3),
    max_staleness=st.integers(0, 2),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_every_group_has_one_fate_and_an_update_is_full_or_the_refills_are_used_up(
    seed: int, num_groups: int, max_refills: int, extra_tasks: int, max_staleness: int, share: float
) -> None:
    rules = SamplingRules(
        num_groups=num_groups,
        smallest_group=2,
        dynamic=True,
        max_refills=max_refills,
        extra_tasks=extra_tasks,
        max_staleness=max_staleness,
    )
    draw = Random(seed)
    waiting: tuple[GroupName, ...] = ()
    for training_step in range(1, 5):
        played: list[PlayedGroup] = []
        fresh = still_fresh(rules, waiting, training_step=training_step)
        size, num_refills = first_wave(rules, num_waiting=len(fresh)), 0
        while size:
            played += [
                group(
                    len(played) + place,
                    GOOD if draw.random() < share else draw.choice((FLAT, BROKEN)),
                    step=training_step,
                )
                for place in range(size)
            ]
            size = next_wave(rules, num_waiting=len(fresh), played=played, num_refills=num_refills)
            num_refills += bool(size)

        decision = decide(
            rules, training_step=training_step, waiting=waiting, played=played, stopped=()
        )

        there = {*waiting, *(one.name for one in played)}
        fates = [*decision.taken, *decision.thrown_away, *decision.waiting]
        assert sorted(fates) == sorted(there)
        assert len(decision.taken) <= num_groups
        assert num_refills <= max_refills
        if len(decision.taken) < num_groups:
            assert num_refills == max_refills
            assert decision.waiting == ()
            assert "surplus" not in decision.thrown_away.values()
        assert len(played) <= (1 + max_refills) * (num_groups + extra_tasks)
        assert all(training_step - n.training_step <= max_staleness for n in decision.taken)
        assert list(decision.taken) == sorted(decision.taken)
        waiting = decision.waiting
        if max_staleness == 0:
            assert waiting == ()
