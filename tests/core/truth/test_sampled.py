"""Sampled values: how many continuations, and whether their intervals hold the exact ones."""

import numpy as np
import pytest
from credit_truth import learnt, mixed
from state_policies import continuations, sampled_value

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.evaluation import Interval, bounded_mean_interval
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.truth import (
    ExactValues,
    SampledAdvantage,
    exact_values,
    fewest_continuations,
    num_wanted,
    tabulated,
)
from longhaul_core.types import Split
from longhaul_envs.key_door.tasks import KeyDoorOptions
from longhaul_envs.key_door.tasks import tasks as key_door_tasks
from longhaul_envs.players import opened

NUM_PAIRS = 2000
HORIZON = 16


@pytest.fixture(scope="module")
def exact() -> tuple[ExactValues, FloatArray]:
    """A small layout under half an expert's policy, without a discount: returns are 0 and 1."""
    spec = GymEnvironmentSpec(environment_id="longhaul/KeyDoor-v0", options={"room_size": 3})
    (task,) = key_door_tasks(Split.TRAIN, KeyDoorOptions(room_size=3), 1)
    with opened(spec) as player:
        known = learnt(player, task, horizon=HORIZON)
    probabilities_E = tabulated(known.graph, mixed(known.advice, random_share=0.5))
    return exact_values(known.graph, probabilities_E, discount=1.0), probabilities_E


def test_intervals_of_sampled_values_hold_the_exact_ones(
    exact: tuple[ExactValues, FloatArray],
) -> None:
    values, probabilities_E = exact
    graph, random = values.graph, np.random.default_rng(0)
    held: list[bool] = []
    true_values: list[float] = []
    for _ in range(NUM_PAIRS):
        state = int(random.integers(len(graph.states)))
        most = HORIZON - int(graph.depths_S[state])
        if most == 0:
            continue
        left = int(random.integers(1, most + 1))
        draw = continuations(
            graph,
            probabilities_E,
            state=state,
            steps_left=left,
            discount=1.0,
            random=random.spawn(1)[0],
        )
        found = sampled_value(draw, half_width=0.1)
        true_values.append(float(values.values_LS[left, state]))
        held.append(found.low - 1e-12 <= true_values[-1] <= found.high + 1e-12)

    assert len(held) > 0.95 * NUM_PAIRS
    assert np.mean(held) >= 0.93
    assert np.std(true_values) > 0.1  # values of one kind would prove little
    assert sum(0.02 < value < 0.98 for value in true_values) > NUM_PAIRS / 3


def test_sampled_advantages_hold_the_exact_ones(exact: tuple[ExactValues, FloatArray]) -> None:
    values, probabilities_E = exact
    graph, random = values.graph, np.random.default_rng(1)
    held: list[bool] = []
    right: list[bool] = []
    for _ in range(200):
        edge = int(random.integers(len(graph.actions)))
        state = int(graph.sources_E[edge])
        left = int(random.integers(1, HORIZON - int(graph.depths_S[state]) + 1))
        value, action_value = (
            sampled_value(
                continuations(
                    graph,
                    probabilities_E,
                    state=state,
                    steps_left=left,
                    edge=first,
                    discount=1.0,
                    random=draws,
                ),
                half_width=0.05,
            )
            for first, draws in zip((None, edge), random.spawn(2), strict=True)
        )
        found = SampledAdvantage(value=value, action_value=action_value)
        true = float(values.action_values_LE[left, edge] - values.values_LS[left, state])
        held.append(found.advantage.low - 1e-12 <= true <= found.advantage.high + 1e-12)
        if found.has_effect:
            right.append((found.advantage.estimate > 0) == (true > 0))

    assert np.mean(held) >= 0.93
    assert len(right) > 10
    assert np.mean(right) > 0.93


def test_continuations_are_discounted(exact: tuple[ExactValues, FloatArray]) -> None:
    values, probabilities_E = exact
    graph = values.graph
    discounted = exact_values(graph, probabilities_E, discount=0.5)
    last = int(np.flatnonzero(graph.targets_E == -1)[0])  # an action that reaches the goal
    state = int(graph.sources_E[last])
    left = HORIZON - int(graph.depths_S[state])

    draw = continuations(
        graph,
        probabilities_E,
        state=state,
        steps_left=left,
        discount=0.5,
        random=np.random.default_rng(2),
    )

    returns_N = draw(4000)
    expected = float(discounted.values_LS[left, state])
    assert returns_N.mean() == pytest.approx(expected, abs=4 * returns_N.std() / 4000**0.5)
    assert len(set(returns_N.tolist())) > 3


def test_as_many_continuations_are_drawn_as_the_interval_needs() -> None:
    asked: list[int] = []

    def coin(number: int) -> FloatArray:
        asked.append(number)
        return np.resize([0.0, 1.0], number)

    def certain(number: int) -> FloatArray:
        asked.append(number)
        return np.ones(number)

    even = sampled_value(coin, half_width=0.1)
    assert (asked, even.num_units) == ([32, 32, 64], 128)  # 1.96 √(0.25 / 128) = 0.087
    asked.clear()
    sure = sampled_value(certain, half_width=0.1)
    # 1.96² / (n + 1.96²) below the mean: 0.107 of 32, 0.057 of 64
    assert (asked, sure.num_units) == ([32, 32], 64)
    asked.clear()
    cut = sampled_value(coin, half_width=0.001, first=4, most=10)
    assert (asked, cut.num_units) == ([4, 4, 2], 10)


def test_the_interval_of_an_advantage_by_hand() -> None:
    found = SampledAdvantage(
        value=Interval(0.5, 0.38, 0.66, 0.95, 60), action_value=Interval(0.9, 0.78, 0.95, 0.95, 40)
    )

    # low = 0.4 - √(0.12² + 0.16²) = 0.2;   high = 0.4 + √(0.05² + 0.12²) = 0.53
    assert found.advantage.estimate == pytest.approx(0.4)
    assert found.advantage.low == pytest.approx(0.2)
    assert found.advantage.high == pytest.approx(0.53)
    assert found.advantage.num_units == 100
    assert found.has_effect


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ValueError, match="half_width must be above 0, got 0"):
        sampled_value(np.zeros, half_width=0.0)
    with pytest.raises(ValueError, match="first must be from 1 to most = 8, got 9"):
        sampled_value(np.zeros, half_width=0.1, first=9, most=8)
    with pytest.raises(ValueError, match=r"values must lie in \[0, 1\], got 2.0 to 2.0"):
        sampled_value(lambda number: np.full(number, 2.0), half_width=0.1)


def test_the_fewest_continuations_are_those_of_returns_that_are_all_alike() -> None:
    for half_width in (0.05, 0.1, 0.25, 0.5, 0.9):
        fewest = fewest_continuations(half_width)
        alike = bounded_mean_interval([1.0] * fewest)
        assert alike.estimate - alike.low <= half_width
        if fewest > 1:
            fewer = bounded_mean_interval([1.0] * (fewest - 1))
            assert fewer.estimate - fewer.low > half_width
    assert fewest_continuations(0.1) == 35  # z² = 3.8415; 3.8415 (1 / 0.1 - 1) = 34.57


def test_continuations_are_doubled_until_the_interval_is_narrow_or_the_limit_is_met() -> None:
    wide, narrow = Interval(0.5, 0.3, 0.6, 0.95, 30), Interval(0.5, 0.4, 0.6, 0.95, 90)

    assert num_wanted(wide, so_far=32, half_width=0.1, most=128) == 64
    assert num_wanted(wide, so_far=96, half_width=0.1, most=128) == 128
    assert num_wanted(wide, so_far=128, half_width=0.1, most=128) == 128
    assert num_wanted(narrow, so_far=96, half_width=0.11, most=128) == 96
