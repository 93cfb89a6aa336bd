"""The difficulty pool: its probabilities by hand, its draws by enumeration, its floor."""

import json
from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import make_task
from longhaul_core.errors import ConfigError
from longhaul_core.tasks import DifficultyStream
from longhaul_core.types import GroupOutcome, TaskKey

TASKS = [make_task(number) for number in range(4)]


def solved(place: int, num_successes: int, num_episodes: int) -> GroupOutcome:
    return GroupOutcome(
        task=TASKS[place].key,
        horizon=5,
        num_successes=num_successes,
        num_episodes=num_episodes,
    )


def outcome_of(drawn: tuple[int, int, float]) -> GroupOutcome:
    place, num_episodes, share = drawn
    return solved(place, round(share * num_episodes), num_episodes)


outcomes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 8), st.floats(0, 1)).map(outcome_of), max_size=12
)


def pool(*, seed: int = 0, uniform_share: float = 0.2, smoothing: float = 0.5) -> DifficultyStream:
    return DifficultyStream(TASKS, seed=seed, uniform_share=uniform_share, smoothing=smoothing)


# Probabilities


def test_probabilities_by_hand() -> None:
    stream = pool(uniform_share=0.2, smoothing=0.5)
    stream.record([solved(0, 2, 4), solved(1, 0, 4), solved(1, 0, 4), solved(2, 4, 4)])
    # Task 0: 1/2 · 1/2 + 1/2 · 2/4 = 1/2              p (1 - p) = 16/64
    # Task 1: 1/2 · 1/2 + 0 = 1/4, then 1/8            7/64
    # Task 2: 1/2 · 1/2 + 1/2 · 1 = 3/4                12/64
    # Task 3: never met, 1/2                           16/64
    # Sum 51/64; P_i = 0.2 / 4 + 0.8 · (16, 7, 12, 16) / 51
    expected = [0.05 + 0.8 * part / 51 for part in (16, 7, 12, 16)]
    assert stream.probabilities() == pytest.approx(expected, rel=1e-15)
    assert stream.state()["success_rates"] == [
        ("fakes/Counting-v0", "train/00000", 0.5),
        ("fakes/Counting-v0", "train/00001", 0.125),
        ("fakes/Counting-v0", "train/00002", 0.75),
    ]


def test_where_no_task_has_anything_to_teach_all_are_alike() -> None:
    stream = pool(smoothing=1.0)
    stream.record([solved(0, 4, 4), solved(1, 0, 4), solved(2, 4, 4), solved(3, 0, 4)])
    assert stream.probabilities().tolist() == [0.25] * 4


def test_tasks_that_were_never_met_are_alike() -> None:
    assert pool().probabilities() == pytest.approx([0.25] * 4, rel=1e-15)


# Nearer to 1, success rates come so close to 0 and 1 that p (1 - p) is mostly rounding.
@settings(deadline=None)
@given(told=outcomes, uniform_share=st.floats(0.01, 1), smoothing=st.floats(0.01, 0.9))
def test_probabilities_add_up_keep_their_floor_and_follow_the_naive_definition(
    told: list[GroupOutcome], uniform_share: float, smoothing: float
) -> None:
    stream = pool(uniform_share=uniform_share, smoothing=smoothing)
    stream.record(told)

    rates = [0.5] * 4
    for one in told:
        place = int(one.task.task_id.removeprefix("train/"))
        newest = one.num_successes / one.num_episodes
        rates[place] += smoothing * (newest - rates[place])
    variances = [rate * (1 - rate) for rate in rates]
    naive = [
        uniform_share / 4 + (1 - uniform_share) * one / sum(variances) if sum(variances) else 0.25
        for one in variances
    ]

    found = stream.probabilities()
    assert found == pytest.approx(naive, rel=1e-9)
    assert found.sum() == pytest.approx(1, rel=1e-12)
    assert found.min() >= uniform_share / 4 * (1 - 1e-12)
    assert all(0 <= rate <= 1 for _, _, rate in stream.state()["success_rates"])


@settings(deadline=None)
@given(told=outcomes)
def test_a_task_nearer_to_one_half_is_never_less_likely(told: list[GroupOutcome]) -> None:
    stream = pool()
    stream.record(told)
    known = {task_id: rate for _, task_id, rate in stream.state()["success_rates"]}
    rates = [known.get(task.task_id, 0.5) for task in TASKS]
    nearest_first = sorted(range(4), key=lambda place: abs(rates[place] - 0.5))
    found = stream.probabilities()[nearest_first]
    assert (np.diff(found) <= 1e-15).all()


# Draws


def test_tasks_come_as_often_as_their_probabilities_say() -> None:
    stream = pool()
    stream.record([solved(0, 2, 4), solved(1, 0, 4), solved(1, 0, 4), solved(2, 4, 4)])
    expected = stream.probabilities()
    count = Counter(task.seed for _ in range(4000) for task in stream.next(1))
    # Four standard deviations of a share of 4,000 draws are at most 4 · sqrt(1/4 / 4000) = 0.032.
    assert [count[seed] / 4000 for seed in range(4)] == pytest.approx(expected, abs=0.032)


def test_several_at_once_come_as_drawing_without_putting_back_gives() -> None:
    stream = pool()
    stream.record([solved(0, 2, 4), solved(1, 0, 4), solved(1, 0, 4), solved(2, 4, 4)])
    chances = stream.probabilities().tolist()
    naive = [0.0] * 4
    for first, second in permutations(range(4), 2):
        both = chances[first] * chances[second] / (1 - chances[first])
        naive[first] += both
        naive[second] += both

    count = Counter(task.seed for _ in range(4000) for task in stream.next(2))

    assert [count[seed] / 4000 for seed in range(4)] == pytest.approx(naive, abs=0.032)


@settings(deadline=None)
@given(told=outcomes, seed=st.integers(0, 2**53), num_tasks=st.integers(0, 11))
def test_no_task_comes_twice_in_a_call_before_all_have_come(
    told: list[GroupOutcome], seed: int, num_tasks: int
) -> None:
    stream = pool(seed=seed)
    stream.record(told)
    taken = [task.seed for task in stream.next(num_tasks)]
    assert len(taken) == num_tasks
    for begin in range(0, num_tasks, 4):
        part = taken[begin : begin + 4]
        assert len(set(part)) == len(part)


def test_a_pool_of_many_tasks_keeps_to_those_that_can_teach() -> None:
    tasks = [make_task(number) for number in range(1000)]
    stream = DifficultyStream(tasks, seed=0, uniform_share=0.1, smoothing=1.0)
    stream.record(
        [
            GroupOutcome(
                task=task.key,
                horizon=5,
                num_successes=4 if task.seed < 50 else 8,
                num_episodes=8,
            )
            for task in tasks
        ]
    )
    taken = [task.seed for task in stream.next(20)]
    # 95 in 100 draws fall on the fifty by 0.9 of variance and 0.1 · 50 / 1000 of the floor.
    assert sum(seed < 50 for seed in taken) >= 14


@settings(deadline=None)
@given(told=outcomes, seed=st.integers(0, 2**53))
def test_a_draw_walks_along_the_probabilities_as_far_as_its_random_number(
    told: list[GroupOutcome], seed: int
) -> None:
    stream = pool(seed=seed)
    stream.record(told)
    chances = [float(chance) for chance in stream.probabilities()]
    naive: list[int] = []
    for number in range(4):
        left = [place for place in range(4) if place not in naive]
        raw = int(np.random.PCG64([seed, number]).random_raw(1).tolist()[0])
        walk = raw // 2**11 / 2**53 * sum(chances[place] for place in left)
        ends = {place: sum(chances[p] for p in left if p <= place) for place in left}
        naive.append(next(place for place, end in ends.items() if end > walk))

    assert [task.seed for task in stream.next(4)] == naive


def test_draws_are_the_same_on_every_machine_and_numpy() -> None:
    stream = pool(seed=1)
    first = [task.seed for task in stream.next(4)]
    stream.record([solved(0, 4, 4), solved(3, 1, 4)])
    second = [task.seed for task in stream.next(8)]
    assert (first, second) == ([2, 0, 1, 3], [1, 2, 0, 3, 2, 3, 1, 0])


# State


def test_a_state_does_not_change_with_the_pool_it_was_taken_of() -> None:
    stream = pool()
    before = stream.state()
    stream.record([solved(0, 0, 4)])
    assert before["success_rates"] == []


def test_tasks_of_two_environments_with_one_id_are_two_tasks() -> None:
    twins = [replace(task, environment="fakes/Other-v0") for task in TASKS]
    stream = DifficultyStream([*TASKS, *twins], seed=0, uniform_share=0.2, smoothing=1.0)
    stream.record([replace(solved(1, 0, 4), task=twins[1].key)])
    probabilities = stream.probabilities()

    assert probabilities[5] == pytest.approx(0.2 / 8, rel=1e-12)  # hopeless there: the floor
    assert probabilities[1] == pytest.approx(0.2 / 8 + 0.8 / 7, rel=1e-12)


def test_a_state_of_before_tasks_were_keyed_by_environment_is_read() -> None:
    stream = pool()
    stream.record([solved(0, 0, 4), solved(2, 4, 4)])
    state = json.loads(json.dumps(stream.state()))
    older = state | {"success_rates": {"train/00000": 0.25, "train/00002": 0.75}}
    begin = {"uniform_share": 0.2, "smoothing": 0.5}

    resumed = DifficultyStream.from_state(TASKS, older, **begin)

    assert resumed.state() == stream.state()
    assert resumed.next(20) == stream.next(20)


# Refusals


def test_two_tasks_of_one_id_are_refused() -> None:
    with pytest.raises(ConfigError, match="'train/00001' of fakes/Counting-v0 stands 2 times"):
        DifficultyStream([*TASKS, TASKS[1]], seed=0, uniform_share=0.1, smoothing=0.5)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, float("nan")])
def test_shares_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=rf"uniform_share .* \(0, 1\], got {value:g}"):
        pool(uniform_share=value)
    with pytest.raises(ConfigError, match=rf"smoothing .* \(0, 1\], got {value:g}"):
        pool(smoothing=value)


def test_the_outcome_of_a_stranger_is_refused() -> None:
    stranger = GroupOutcome(
        task=TaskKey("fakes/Counting-v0", "nobody"), horizon=1, num_successes=0, num_episodes=1
    )
    with pytest.raises(ValueError, match="fakes/Counting-v0 nobody is not in the difficulty pool"):
        pool().record([stranger])
