"""Exact values: hand-worked, by definition, and against every trajectory of tiny worlds."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_core.truth import INVALID, ExactValues, Policy, exact_values, explored, tabulated
from table_world import TASK, Outcome, TableWorld, fixed, uneven

CORRIDOR = {"a": {"go": ("b", 0.0)}, "b": {"go": (None, 1.0)}}
MOSTLY = {"go": 0.75, INVALID: 0.25}


def corridor_values() -> ExactValues:
    graph = explored(TableWorld(CORRIDOR), TASK, horizon=3)
    probabilities_E = tabulated(graph, fixed({"a": MOSTLY, "b": MOSTLY}))
    return exact_values(graph, probabilities_E, discount=0.5)


def test_a_corridor_of_two_rooms_by_hand() -> None:
    values = corridor_values()
    a, b = values.graph.states

    # V(b, 1) = 3/4.   V(b, 2) = 3/4 + 1/4 · 1/2 · 3/4 = 27/32
    assert values.value(b, steps_left=1) == 3 / 4
    assert values.value(b, steps_left=2) == 27 / 32
    # V(a, 1) = 0.   V(a, 2) = 3/4 · 1/2 · 3/4 = 9/32.   V(a, 3) = 3/8 · 27/32 + 1/8 · 9/32 = 45/128
    assert values.value(a, steps_left=1) == 0.0
    assert values.value(a, steps_left=2) == 9 / 32
    assert values.value(a, steps_left=3) == 45 / 128
    # Q(a, 3, go) = 1/2 · 27/32 = 54/128.   Q(a, 3, invalid) = 1/2 · 9/32 = 18/128
    assert values.advantage(a, "go", steps_left=3) == 9 / 128
    assert values.advantage(a, INVALID, steps_left=3) == -27 / 128


def test_a_state_cannot_be_met_with_more_steps_left_than_its_way_leaves() -> None:
    values = corridor_values()
    a, b = values.graph.states

    assert math.isnan(values.values_LS[3, 1])
    with pytest.raises(ConfigError, match=r"3 steps cannot be left .* there are 0 to 2"):
        values.value(b, steps_left=3)
    with pytest.raises(ConfigError, match="needs at least 1 step, and 0 are left"):
        values.advantage(a, "go", steps_left=0)


@pytest.mark.parametrize(
    "shares",
    [{"go": 0.5}, {"go": 1.2, INVALID: -0.2}, {"go": float("nan"), INVALID: 0.5}],
)
def test_what_is_no_distribution_is_refused(shares: Mapping[str, float]) -> None:
    graph = explored(TableWorld(CORRIDOR), TASK, horizon=3)

    with pytest.raises(ConfigError, match="must be at least 0 and 1 together"):
        tabulated(graph, fixed({"a": shares, "b": MOSTLY}))
    with pytest.raises(ConfigError, match="'fly' is no action in state 'a'"):
        tabulated(graph, fixed({"a": {"fly": 1.0}, "b": MOSTLY}))
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\], got 1.5"):
        exact_values(graph, tabulated(graph, uneven), discount=1.5)


States = ("a", "b", "c")
outcomes = st.tuples(st.sampled_from((*States, None)), st.integers(-4, 4).map(float))
tables = st.fixed_dictionaries(
    {state: st.fixed_dictionaries({"x": outcomes, "y": outcomes}) for state in States}
)


@settings(max_examples=30)
@given(table=tables, horizon=st.integers(1, 4), discount=st.sampled_from([0.0, 0.5, 1.0]))
def test_values_are_the_means_over_all_trajectories(
    table: dict[str, dict[str, Outcome]], horizon: int, discount: float
) -> None:
    world = TableWorld(table)
    graph = explored(world, TASK, horizon=horizon)
    values = exact_values(graph, tabulated(graph, uneven), discount=discount)

    ways = list(trajectories(world, "a", uneven, horizon, discount))

    assert sum(share for share, _ in ways) == pytest.approx(1.0)
    mean = sum(share * paid for share, paid in ways)
    assert values.value(graph.states[0], steps_left=horizon) == pytest.approx(mean, abs=1e-9)


def trajectories(
    world: TableWorld, state: str | None, policy: Policy, left: int, discount: float
) -> Iterator[tuple[float, float]]:
    """The probability and the return of every way on."""
    if state is None or left == 0:
        yield 1.0, 0.0
        return
    for action, share in policy(world.observed(state)).items():
        target, reward = world.table[state].get(action, (state, 0.0))
        for later, paid in trajectories(world, target, policy, left - 1, discount):
            yield share * later, reward + discount * paid


@settings(max_examples=30)
@given(table=tables, horizon=st.integers(1, 6))
def test_a_value_is_the_mean_of_its_action_values(
    table: dict[str, dict[str, Outcome]], horizon: int
) -> None:
    graph = explored(TableWorld(table), TASK, horizon=horizon)
    probabilities_E = tabulated(graph, uneven)
    values = exact_values(graph, probabilities_E, discount=0.9)

    for left in range(1, horizon + 1):
        weighted_E = probabilities_E * values.action_values_LE[left]
        values_S = np.bincount(graph.sources_E, weights=weighted_E, minlength=len(graph.states))
        met_S = left + graph.depths_S <= horizon
        np.testing.assert_allclose(values.values_LS[left, met_S], values_S[met_S], atol=1e-9)
        assert np.isnan(values.values_LS[left, ~met_S]).all()


@settings(max_examples=30)
@given(table=tables)
def test_values_are_those_of_the_definition(table: dict[str, dict[str, Outcome]]) -> None:
    world, horizon = TableWorld(table), 5
    graph = explored(world, TASK, horizon=horizon)
    values = exact_values(graph, tabulated(graph, uneven), discount=0.5)

    def by_definition(state: str | None, left: int) -> float:
        if state is None or left == 0:
            return 0.0
        return sum(
            share * action_value(state, action, left)
            for action, share in uneven(world.observed(state)).items()
        )

    def action_value(state: str, action: str, left: int) -> float:
        target, reward = table[state].get(action, (state, 0.0))
        return reward + 0.5 * by_definition(target, left - 1)

    for seen, depth in zip(graph.states, graph.depths_S.tolist(), strict=True):
        for left in range(1, horizon - depth + 1):
            for action in ("x", "y", INVALID):
                expected = action_value(seen.text, action, left) - by_definition(seen.text, left)
                found = values.advantage(seen, action, steps_left=left)
                assert found == pytest.approx(expected, abs=1e-9)
