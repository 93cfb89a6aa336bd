"""Tests for `longhaul_core.advantages.graphgpo`."""

import itertools
from collections import defaultdict
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import EpisodeCredit, Statistics
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.graphgpo import DistanceForm, GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit

Path = tuple[str | None, ...]
"""The states that an episode went through, the one it ended in among them; None for the goal."""


def path(states: list[str], final: str | None) -> Path:
    return (*states, final)


paths = st.lists(
    st.builds(
        path,
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=7),
        st.sampled_from((*"abcdef", None)),
    ),
    min_size=2,
    max_size=6,
)


def rewards_of(group: list[Path]) -> list[FloatArray]:
    """1 for reaching the goal."""
    return [np.array([0.0] * (len(path) - 2) + [float(path[-1] is None)]) for path in group]


def credits_of(
    group: list[Path],
    *,
    form: DistanceForm = "proximity",
    decay: float = 0.5,
    episode_weight: float = 1.0,
    step_weight: float = 1.0,
    similarity: float | None = None,
    scale_by_std: bool = False,
    statistics: Statistics = "episode",
) -> tuple[EpisodeCredit, ...]:
    return graphgpo_credit(
        rewards_of(group),
        [[state for state in path[:-1] if state is not None] for path in group],
        [path[-1] for path in group],
        settings=GraphSettings(
            distance_decay=decay,
            distance_form=form,
            step_advantage_weight=step_weight,
            episode_advantage_weight=episode_weight,
            similarity=similarity,
        ),
        discount=0.5,
        scale_by_std=scale_by_std,
        statistics=statistics,
    )


HAND_WORKED: list[Path] = [
    ("start", "hall", "door", None),
    ("start", "hall", "attic", "hall", "door"),
    ("start", "cellar", "cellar", "cellar"),
]
"""The first attempt reaches the goal; the second is cut short before the door, after a detour;
the third stays in the cellar.

                        attic 3
                         │   ▲
                         ▼   │
    start 3 ──────────► hall 2 ───► door 1 ───► goal 0
       │
       ▼
    cellar 4 ⟲      no way: one further than start and attic

Worth of a step with decay 1/2, 10 / 2^d of where it leads:
    start   hall 2.5, hall 2.5, cellar 0.625    mean 1.875     0.625  0.625  -1.25
    hall    door 5, attic 1.25, door 5          mean 3.75      1.25   -2.5   1.25
    cellar  0.625 twice                                        0  0
    door and attic are left once                               0
By progress, 10 / 2^(d(s') - d(s) + 1):
    start   10, 10, 2.5                         mean 7.5       2.5  2.5  -5
    hall    10, 2.5, 10                         mean 7.5       2.5  -5  2.5
Returns 1, 0, 0 less their mean: 2/3, -1/3, -1/3.
"""


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("proximity", [(0.625, 1.25, 0), (0.625, -2.5, 0, 1.25), (-1.25, 0, 0)]),
        ("progress", [(2.5, 2.5, 0), (2.5, -5, 0, 2.5), (-5, 0, 0)]),
    ],
)
def test_matches_the_hand_worked_graph(
    form: DistanceForm, expected: list[tuple[float, ...]]
) -> None:
    found = credits_of(HAND_WORKED, form=form)

    assert [credit.episode_advantage for credit in found] == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    for credit, steps in zip(found, expected, strict=True):
        assert credit.step_advantages == pytest.approx(steps)
        assert credit.advantages == pytest.approx([credit.episode_advantage + s for s in steps])
    assert found[0].returns_to_go == (0.25, 0.5, 1.0)


@pytest.mark.parametrize("form", ["proximity", "progress"])
def test_scaling_is_by_the_deviation_of_both_parts(form: DistanceForm) -> None:
    first, second, third = credits_of(HAND_WORKED, form=form, scale_by_std=True)

    # x, x, -2x have the deviation sqrt(3) x, and 2/3, -1/3, -1/3 have sqrt(1/3)
    one, two = 3**-0.5, 2 * 3**-0.5
    np.testing.assert_allclose(first.step_advantages, [one, one, 0], rtol=1e-5)
    np.testing.assert_allclose(second.step_advantages, [one, -two, 0, one], rtol=1e-5)
    np.testing.assert_allclose(third.step_advantages, [-two, 0, 0], rtol=1e-5)
    assert first.episode_advantage == pytest.approx(two, rel=1e-5)


def test_both_parts_have_their_weight() -> None:
    first, second, _ = credits_of(HAND_WORKED, episode_weight=3.0, step_weight=0.5)

    np.testing.assert_allclose(first.advantages, [2.3125, 2.625, 2.0])
    np.testing.assert_allclose(second.advantages, [-0.6875, -2.25, -1.0, -0.375])
    assert first.episode_advantage == pytest.approx(2 / 3)
    assert first.step_advantages[0] == 0.625


def test_the_statistics_of_the_episode_part_can_be_over_steps() -> None:
    # ten steps, three of them in the episode that succeeded
    first, second, _ = credits_of(HAND_WORKED, statistics="row")

    assert (first.episode_advantage, second.episode_advantage) == pytest.approx((0.7, -0.3))


def test_an_episode_cut_short_is_credited_for_the_state_that_it_ended_in() -> None:
    elsewhere = [HAND_WORKED[0], (*HAND_WORKED[1][:-1], "pond"), HAND_WORKED[2]]

    assert credits_of(HAND_WORKED)[1].step_advantages[3] > 0
    assert credits_of(elsewhere)[1].step_advantages[3] < 0


def test_an_edge_counts_for_others_though_only_an_episode_without_success_took_it() -> None:
    # The short way from a to c is seen in the second alone, which then gives up.
    group: list[Path] = [("a", "b", "b", "c", None), ("a", "c", "c")]

    first, second = credits_of(group)

    # d: c 1, a and b 2. From a: to b 2.5, to c 5. From c: the goal 10, itself 5.
    assert first.step_advantages == pytest.approx((-1.25, -1.25, 1.25, 2.5))
    assert second.step_advantages == pytest.approx((1.25, -2.5))


@given(paths)
def test_without_success_nothing_but_the_episode_part_is_left(group: list[Path]) -> None:
    failed: list[Path] = [path if path[-1] else (*path[:-1], "a") for path in group]

    for form in ("proximity", "progress"):
        for credit in credits_of(failed, form=form, scale_by_std=True):
            assert set(credit.step_advantages) == {0.0}


@given(paths)
def test_without_a_step_part_it_is_grpo(group: list[Path]) -> None:
    found = credits_of(group, step_weight=0.0, scale_by_std=True)

    for credit, other in zip(found, grpo_credit(rewards_of(group)), strict=True):
        assert credit.advantages == other.advantages


@given(paths, st.sampled_from(("proximity", "progress")), st.booleans())
def test_agrees_with_the_definition(
    group: list[Path], form: DistanceForm, scale_by_std: bool
) -> None:
    found = credits_of(group, form=form, scale_by_std=scale_by_std)

    nodes = {state for path in group for state in path} | {None}
    steps = [list(itertools.pairwise(path)) for path in group]
    lengths = {
        pair: 0 if pair[0] == pair[1] else 1 if any(pair in path for path in steps) else inf
        for pair in itertools.product(nodes, repeat=2)
    }
    for via, start, end in itertools.product(nodes, repeat=3):
        lengths[start, end] = min(lengths[start, end], lengths[start, via] + lengths[via, end])
    furthest = max(lengths[node, None] for node in nodes if lengths[node, None] < inf)
    distance = {node: min(lengths[node, None], furthest + 1) for node in nodes}

    def worth(before: str | None, after: str | None) -> float:
        nearer = distance[before] - 1 if form == "progress" else 0
        return 10 * 0.5 ** (distance[after] - nearer)

    left: dict[str | None, list[float]] = defaultdict(list)
    for before, after in itertools.chain(*steps):
        left[before].append(worth(before, after))
    for credit, path in zip(found, steps, strict=True):
        expected = [normal(worth(*step), left[step[0]], scale_by_std) for step in path]
        np.testing.assert_allclose(credit.step_advantages, expected, rtol=1e-6, atol=1e-9)


def normal(value: float, values: list[float], scale: bool) -> float:
    if max(values) == min(values):
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return (value - mean) / (variance**0.5 + 1e-6) if scale else value - mean


@given(paths)
def test_divided_by_the_deviation_both_forms_say_the_same(group: list[Path]) -> None:
    near = credits_of(group, form="proximity", scale_by_std=True)
    nearer = credits_of(group, form="progress", scale_by_std=True)

    for one, other in zip(near, nearer, strict=True):
        np.testing.assert_allclose(one.step_advantages, other.step_advantages, rtol=1e-3)


def test_far_from_the_goal_the_epsilon_silences_proximity_and_not_progress() -> None:
    way = tuple(f"{number} steps to go" for number in range(12, 0, -1))
    group: list[Path] = [(*way, None), (*(s for s in way for _ in range(2)), None)]

    near = credits_of(group, form="proximity", decay=0.1, scale_by_std=True)[0]
    nearer = credits_of(group, form="progress", decay=0.1, scale_by_std=True)[0]

    # of three steps that leave a state, two go on and one stays
    assert nearer.step_advantages == pytest.approx([3**-0.5] * 12, rel=1e-5)
    assert near.step_advantages[-6:] == pytest.approx([3**-0.5] * 6, rel=0.05)
    assert max(near.step_advantages[:3]) < 0.02


def test_states_that_read_alike_are_one_in_the_graph_and_in_the_comparison() -> None:
    group: list[Path] = [
        ("the hall, at 10:01", "the door, at 10:02", None),
        ("the hall, at 10:03", "the door, at 10:04"),
        ("the hall, at 10:05", "the pond, at 10:06"),
    ]

    apart = credits_of(group)
    joined = credits_of(group, similarity=0.9)

    assert {step for credit in apart for step in credit.step_advantages} == {0.0}
    # door 1, hall 2, pond 3: 5, 5 and 1.25
    assert [credit.step_advantages[0] for credit in joined] == pytest.approx([1.25, 1.25, -2.5])


def test_no_text_is_taken_for_the_goal() -> None:
    group: list[Path] = [("a", None), ("a", "success"), ("a", "None")]

    first, second, third = credits_of(group, similarity=0.5)

    # 10 at the goal, 2.5 at either other: a is 1 step away, and these have no way
    assert first.step_advantages == pytest.approx((5.0,))
    assert second.step_advantages == third.step_advantages == pytest.approx((-2.5,))


def test_a_way_of_thousands_of_steps_is_measured() -> None:
    way = tuple(map(str, range(5000)))
    group: list[Path] = [(*way, None), (*way, None)]

    for credit in credits_of(group, form="progress", scale_by_std=True):
        assert set(credit.advantages) == {0.0}
    assert credits_of([*group, ("0", "0")], form="progress")[2].step_advantages[0] < 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"distance_decay": 0.0}, r"distance_decay must lie in \(0, 1\), both excluded, got 0.0"),
        ({"distance_decay": 1.0}, r"distance_decay must lie in \(0, 1\), both excluded, got 1.0"),
        (
            {"step_advantage_weight": -1.0},
            r"step_advantage_weight must lie in \[0, 1e\+100\], got -1.0",
        ),
        (
            {"episode_advantage_weight": inf},
            r"episode_advantage_weight must lie in \[0, 1e\+100\], got inf",
        ),
    ],
)
def test_settings_that_make_no_sense_cannot_be_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSettings(**settings)


def test_states_that_are_not_one_for_each_step_or_episode_are_refused() -> None:
    rewards = [np.zeros(2), np.zeros(1)]

    with pytest.raises(ValueError, match=r"episodes have \[2, 1\] rewards but \[2, 2\] anchor"):
        graphgpo_credit(rewards, ["ab", "ab"], ["c", "c"], settings=GraphSettings())
    with pytest.raises(ValueError, match="got 2 episodes and 1 final states"):
        graphgpo_credit(rewards, ["ab", "a"], ["c"], settings=GraphSettings())
