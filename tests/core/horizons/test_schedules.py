"""Horizon schedules: worked by hand, against a naive definition, and through save and restore."""

import json
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_core.horizons import (
    FixedHorizon,
    HorizonSchedule,
    HorizonState,
    LinearHorizon,
    StepwiseHorizon,
    SuccessGatedHorizon,
)
from longhaul_core.types import GroupOutcome, TaskKey

START = HorizonState()
GATED = SuccessGatedHorizon(stages=(5, 10, 20), threshold=0.5, window=2)
EVERY_KIND: list[HorizonSchedule] = [
    FixedHorizon(steps=7),
    StepwiseHorizon(stages=(4, 8, 16), training_steps_per_stage=3),
    LinearHorizon(start=2, end=9, end_training_step=12),
    GATED,
]

rising = st.sets(st.integers(1, 60), min_size=1, max_size=6).map(lambda s: tuple(sorted(s)))
counts = st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def outcome(num_successes: int, num_episodes: int, *, horizon: int) -> GroupOutcome:
    return GroupOutcome(
        task=TaskKey("fakes/Counting-v0", "one"),
        horizon=horizon,
        num_successes=num_successes,
        num_episodes=num_episodes,
    )


def horizons(schedule: HorizonSchedule, num_training_steps: int) -> list[int]:
    """Of training steps 1, 2, … in the state of a run's start."""
    return [schedule.horizon(step, START) for step in range(1, num_training_steps + 1)]


def played(schedule: HorizonSchedule, solved: Sequence[tuple[int, int]]) -> list[int]:
    """Horizon of each training step of a run whose groups came out as `solved` says."""
    state, found = START, list[int]()
    for training_step, (successes, episodes) in enumerate(solved, start=1):
        found.append(schedule.horizon(training_step, state))
        state = schedule.after(state, [outcome(successes, episodes, horizon=found[-1])])
    return found


# Fixed


def test_a_fixed_horizon_is_the_same_throughout() -> None:
    assert horizons(FixedHorizon(steps=7), 4) == [7, 7, 7, 7]


# Stepwise


def test_stages_change_after_exactly_their_number_of_training_steps() -> None:
    # k:      1  2  3   4  5  6   7  8  9
    # k - 1:  0  1  2   3  4  5   6  7  8
    # by 3:   0  0  0   1  1  1   2  2  2, and there are two stages, 0 and 1
    schedule = StepwiseHorizon(stages=(10, 20), training_steps_per_stage=3)
    assert horizons(schedule, 9) == [10, 10, 10, 20, 20, 20, 20, 20, 20]


def test_agentgym_rls_textcraft_run_changes_after_steps_100_and_200() -> None:
    schedule = StepwiseHorizon(stages=(10, 20, 30), training_steps_per_stage=100)
    found = [schedule.horizon(step, START) for step in (1, 100, 101, 102, 200, 201, 10_000)]
    assert found == [10, 10, 20, 20, 20, 30, 30]


@settings(deadline=None)
@given(stages=rising, length=st.integers(1, 20), training_step=st.integers(1, 200))
def test_stepwise_is_what_counting_training_steps_one_by_one_gives(
    stages: tuple[int, ...], length: int, training_step: int
) -> None:
    naive = [stage for stage in stages for _ in range(length)] + [stages[-1]] * 200
    schedule = StepwiseHorizon(stages=stages, training_steps_per_stage=length)
    assert schedule.horizon(training_step, START) == naive[training_step - 1]


# Linear


def test_linear_growth_by_hand() -> None:
    # start 2, end 9, reached at step 5: in 4 intervals 7 more.
    # k = 1: 2 + 0/4 = 2; k = 2: 2 + 7/4 = 3.75; k = 3: 2 + 14/4 = 5.5; k = 4: 2 + 21/4 = 7.25;
    # k = 5: 2 + 28/4 = 9, and 9 from there on.
    schedule = LinearHorizon(start=2, end=9, end_training_step=5)
    assert horizons(schedule, 7) == [2, 3, 5, 7, 9, 9, 9]


@settings(deadline=None)
@given(
    start=st.integers(1, 50),
    growth=st.integers(1, 200),
    length=st.integers(2, 300),
    training_step=st.integers(1, 400),
)
def test_linear_is_the_straight_line_rounded_down(
    start: int, growth: int, length: int, training_step: int
) -> None:
    schedule = LinearHorizon(start=start, end=start + growth, end_training_step=length)
    share = min(Fraction(training_step - 1, length - 1), Fraction(1))
    assert schedule.horizon(training_step, START) == int(start + growth * share)


# Gated by success


def test_the_gate_opens_when_the_full_window_reaches_the_threshold() -> None:
    # Window 2, threshold 1/2.
    # step  solved  horizon  window of the stage             rate
    # 1     4 of 4  5        4/4, not full
    # 2     0 of 6  5        4/4 0/6                         4/10 < 1/2
    # 3     2 of 4  5        0/6 2/4                         2/10 < 1/2
    # 4     2 of 4  5        2/4 2/4                         4/8 = 1/2: next stage
    # 5     4 of 4  10       4/4, not full
    # 6     4 of 4  10       4/4 4/4                         8/8: next stage
    # 7     0 of 4  20       the last stage stays
    solved = [(4, 4), (0, 6), (2, 4), (2, 4), (4, 4), (4, 4), (0, 4), (0, 4)]
    assert played(GATED, solved) == [5, 5, 5, 5, 10, 10, 20, 20]


def test_every_episode_counts_alike_whatever_its_training_step() -> None:
    # The mean of the two steps' rates is (1/1 + 0/3) / 2 = 1/2; that of the episodes is 1/4.
    assert played(GATED, [(1, 1), (0, 3), (0, 1)]) == [5, 5, 5]


def test_all_groups_of_a_training_step_are_one_entry_of_the_window() -> None:
    after = GATED.after(START, [outcome(1, 4, horizon=5), outcome(3, 4, horizon=5)])
    assert after == HorizonState(stage=0, recent=((4, 8),))


def test_a_rate_that_is_exactly_the_threshold_is_enough() -> None:
    for tenths in range(1, 11):
        gate = SuccessGatedHorizon(stages=(1, 2), threshold=tenths / 10, window=1)
        assert gate.after(START, [outcome(tenths, 10, horizon=1)]).stage == 1
        assert gate.after(START, [outcome(tenths - 1, 10, horizon=1)]).stage == 0


def test_episodes_that_were_begun_under_another_horizon_are_not_counted() -> None:
    state = HorizonState(stage=1)
    assert GATED.after(state, [outcome(8, 8, horizon=5)]) == state
    mixed = [outcome(8, 8, horizon=5), outcome(1, 8, horizon=10)]
    assert GATED.after(state, mixed) == HorizonState(stage=1, recent=((1, 8),))


@settings(deadline=None)
@given(
    stages=rising,
    percent=st.integers(1, 100),
    window=st.integers(1, 4),
    solved=st.lists(counts, max_size=40),
)
def test_the_gate_is_what_reading_the_whole_past_gives(
    stages: tuple[int, ...], percent: int, window: int, solved: list[tuple[int, int]]
) -> None:
    gate = SuccessGatedHorizon(stages=stages, threshold=percent / 100, window=window)

    # Naively: keep every training step with the stage it was in, and look back at each end.
    stage, past, expected = 0, list[tuple[int, int, int]](), list[int]()
    for successes, episodes in solved:
        expected.append(stages[stage])
        past.append((stage, successes, episodes))
        mine = [(s, e) for at, s, e in past if at == stage][-window:]
        enough = 100 * sum(s for s, _ in mine) >= percent * sum(e for _, e in mine)
        if len(mine) == window and enough and stage + 1 < len(stages):
            stage += 1

    assert played(gate, solved) == expected


def test_a_state_beyond_the_last_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"stood at stage 3 .* has 3 stages now"):
        GATED.horizon(1, HorizonState(stage=3))


# What holds for every schedule


@pytest.mark.parametrize("schedule", EVERY_KIND, ids=lambda one: type(one).__name__)
@settings(deadline=None)
@given(solved=st.lists(counts, min_size=1, max_size=20))
def test_a_run_goes_on_exactly_from_every_training_step(
    schedule: HorizonSchedule, solved: list[tuple[int, int]]
) -> None:
    undisturbed = played(schedule, solved)
    for killed_after in range(len(solved)):
        state, found = START, list[int]()
        for done, (successes, episodes) in enumerate(solved):
            if done == killed_after:
                state = HorizonState.from_json(json.loads(json.dumps(state.to_json())))
            found.append(schedule.horizon(done + 1, state))
            state = schedule.after(state, [outcome(successes, episodes, horizon=found[-1])])
        assert found == undisturbed, f"killed after training step {killed_after}"


@pytest.mark.parametrize("schedule", EVERY_KIND, ids=lambda one: type(one).__name__)
@settings(deadline=None)
@given(solved=st.lists(counts, min_size=2, max_size=30))
def test_a_horizon_never_falls(schedule: HorizonSchedule, solved: list[tuple[int, int]]) -> None:
    found = played(schedule, solved)
    assert found == sorted(found)
    assert found[0] >= 1


@pytest.mark.parametrize("schedule", EVERY_KIND, ids=lambda one: type(one).__name__)
def test_a_training_step_before_the_first_is_refused(schedule: HorizonSchedule) -> None:
    with pytest.raises(ValueError, match="count from 1, got 0"):
        schedule.horizon(0, START)


@pytest.mark.parametrize("schedule", EVERY_KIND[:3], ids=lambda one: type(one).__name__)
def test_only_the_gate_remembers(schedule: HorizonSchedule) -> None:
    assert schedule.after(START, [outcome(4, 4, horizon=4)]) is START


def test_the_state_is_readable_by_people() -> None:
    state = HorizonState(stage=1, recent=((3, 8), (5, 8)))
    assert json.dumps(state.to_json()) == '{"stage": 1, "recent": [[3, 8], [5, 8]]}'


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "at least 1 horizon, got none"),
        ((0, 5), "must be at least 1, got 0"),
        ((5, 10, 8), "must rise, got 8 after 10"),
        ((5, 5), "must rise, got 5 after 5"),
    ],
)
def test_stages_that_do_not_grow_are_refused(stages: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepwiseHorizon(stages=stages, training_steps_per_stage=1)
    with pytest.raises(ConfigError, match=message):
        SuccessGatedHorizon(stages=stages, threshold=0.5, window=1)


def test_numbers_out_of_range_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="steps must be at least 1, got 0"):
        FixedHorizon(steps=0)
    with pytest.raises(ConfigError, match="training_steps_per_stage must be at least 1, got 0"):
        StepwiseHorizon(stages=(1,), training_steps_per_stage=0)
    with pytest.raises(ConfigError, match=r"start .* got 0; end .* start = 0, got 0; .* got 1"):
        LinearHorizon(start=0, end=0, end_training_step=1)
    with pytest.raises(ConfigError, match=r"threshold .* \(0, 1\], got 0; window .* got 0"):
        SuccessGatedHorizon(stages=(1,), threshold=0.0, window=0)
    with pytest.raises(ConfigError, match="threshold"):
        SuccessGatedHorizon(stages=(1,), threshold=1.01, window=1)


@pytest.mark.parametrize(("num_successes", "num_episodes"), [(-1, 4), (5, 4), (0, 0)])
def test_an_outcome_that_cannot_be_is_refused(num_successes: int, num_episodes: int) -> None:
    with pytest.raises(ValueError, match=f"{num_successes} successes of {num_episodes} episodes"):
        outcome(num_successes, num_episodes, horizon=1)
