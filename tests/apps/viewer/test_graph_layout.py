"""Tests for `longhaul_viewer.components.graph_layout`."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.graphgpo import distances_to_goal
from longhaul_core.store.queries import EdgeStep, StateEdge, StateGraph, StateNode
from longhaul_viewer.components.graph_layout import laid_out

walks = st.lists(
    st.lists(st.integers(0, 12), min_size=2, max_size=9).map(
        lambda walk: [node for node in walk[:-1] if node] + walk[-1:]
    ),
    min_size=1,
    max_size=8,
).filter(lambda found: all(len(walk) > 1 for walk in found))


def graph_of(found: list[list[int]]) -> StateGraph:
    """The graph of episodes that went through these nodes; 0 is the goal."""
    steps = [pair for walk in found for pair in pairwise(walk)]
    distances = distances_to_goal(*zip(*steps, strict=True))
    behind = EdgeStep("e", 0, 0, "go", action_valid=True, advantage=None)
    return StateGraph(
        similarity=None,
        nodes=tuple(
            StateNode(
                number=node,
                anchor_hash=None,
                text=None,
                distance=distances.get(node),
                num_steps=sum(source == node for source, _ in steps),
                num_episodes=sum(node in walk for walk in found),
                num_starts=sum(walk[0] == node for walk in found),
                num_ends=sum(walk[-1] == node for walk in found),
            )
            for node in sorted({node for pair in steps for node in pair})
        ),
        edges=tuple(
            StateEdge(source, target, 1, (behind,)) for source, target in dict.fromkeys(steps)
        ),
    )


def test_states_stand_by_their_distance_and_lost_ones_below() -> None:
    #   1 → 2 → 0 (the goal), 2 → 3 → 4 without a way back, 5 → 2
    places = laid_out(graph_of([[1, 2, 0], [1, 2, 3, 4], [5, 2, 0]]))

    assert {node: place.column for node, place in places.items()} == {
        0: 2,
        1: 0,
        2: 1,
        3: 2,
        4: 3,
        5: 0,
    }
    assert abs(places[1].row - places[5].row) == 1
    assert places[2].row == pytest.approx((places[1].row + places[5].row) / 2)
    assert places[3].row == places[4].row > max(places[n].row for n in (0, 1, 2, 5)) + 1


def test_without_a_success_states_go_from_the_start_to_the_right() -> None:
    places = laid_out(graph_of([[1, 2, 3], [1, 3, 4]]))

    assert [places[node].column for node in (1, 2, 3, 4)] == [0, 1, 1, 2]


@given(walks)
def test_no_two_states_are_nearer_than_a_row_and_nothing_depends_on_chance(
    found: list[list[int]],
) -> None:
    graph = graph_of(found)
    places = laid_out(graph)

    assert set(places) == {node.number for node in graph.nodes}
    assert min(place.row for place in places.values()) == pytest.approx(0)
    for one, other in combinations(places.values(), 2):
        assert one.column != other.column or abs(one.row - other.row) > 1 - 1e-9
    known = [node for node in graph.nodes if node.distance is not None]
    furthest = max((node.distance or 0 for node in known), default=0)
    assert all(places[n.number].column == furthest - (n.distance or 0) for n in known)
    assert laid_out(graph_of(found)) == places
