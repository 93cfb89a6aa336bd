"""Tests for `longhaul_core.advantages.per_agent`."""

from collections import defaultdict
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import EpisodeCredit, Statistics
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.per_agent import gigpo_per_agent_credit, grpo_per_agent_credit
from longhaul_core.errors import GroupError

Episode = list[tuple[float, str, str | None]]
"""Reward, anchor state and agent of each step."""

eighths = st.integers(-80, 80).map(lambda number: number / 8)
groups = st.lists(
    st.lists(
        st.tuples(eighths, st.sampled_from("abc"), st.sampled_from(["red", "blue", None])),
        min_size=1,
        max_size=6,
    ),
    min_size=2,
    max_size=5,
)

HAND_WORKED: list[Episode] = [
    [(0.0, "shelf", "searcher"), (0.0, "desk", "searcher"), (10.0, "desk", "writer")],
    [(0.0, "shelf", "searcher"), (0.0, "desk", "writer")],
    [(4.0, "desk", "writer")],
]
"""A searcher takes part in two episodes, of returns 10 and 0; a writer in all, the third's is 4.

searcher  rows {10, 10, 0}: mean 20/3, 10/3 | 10/3 | -20/3; sample variance 100/3
          episodes {10, 0}: mean 5, 5 | 5 | -5
writer    {10, 0, 4} either way: mean 14/3, 16/3 | -14/3 | -2/3; sample variance 76/3
A^S       discount 0.5, returns-to-go 2.5, 5, 10 | 0, 0 | 4
          searcher at the shelf {2.5, 0}: 1.25 | -1.25, at the desk alone: 0
          writer at the desk {10, 0, 4}: 16/3 | -14/3 | -2/3
"""

SEARCHER, WRITER = 100 / 3, 76 / 3


@pytest.mark.parametrize(
    ("statistics", "scale_by_std", "expected"),
    [
        ("row", False, [[10 / 3, 10 / 3, 16 / 3], [-20 / 3, -14 / 3], [-2 / 3]]),
        ("episode", False, [[5, 5, 16 / 3], [-5, -14 / 3], [-2 / 3]]),
        (
            "row",
            True,
            [
                [10 / 3 / SEARCHER**0.5, 10 / 3 / SEARCHER**0.5, 16 / 3 / WRITER**0.5],
                [-20 / 3 / SEARCHER**0.5, -14 / 3 / WRITER**0.5],
                [-2 / 3 / WRITER**0.5],
            ],
        ),
    ],
)
def test_matches_the_hand_worked_group(
    statistics: Statistics, scale_by_std: bool, expected: list[list[float]]
) -> None:
    credits = grpo_per_agent_credit(
        rewards_of(HAND_WORKED),
        agents_of(HAND_WORKED),
        discount=0.5,
        scale_by_std=scale_by_std,
        statistics=statistics,
    )
    assert_advantages(credits, expected)
    assert [credit.returns_to_go for credit in credits] == [(2.5, 5, 10), (0, 0), (4,)]


def test_both_parts_of_gigpo_match_the_hand_worked_group() -> None:
    credits = of_gigpo(HAND_WORKED, discount=0.5, scale_by_std=False)
    assert_advantages(
        credits,
        [[10 / 3 + 1.25, 10 / 3, 32 / 3], [-20 / 3 - 1.25, -28 / 3], [-4 / 3]],
    )


@given(groups)
def test_one_agent_alone_has_the_groups_baselines(group: list[Episode]) -> None:
    alone: list[Episode] = [[(r, state, "one") for r, state, _ in episode] for episode in group]
    rewards, agents = rewards_of(alone), agents_of(alone)
    for statistics in ("episode", "row"):
        assert_advantages(
            grpo_per_agent_credit(rewards, agents, statistics=statistics),
            [list(each.advantages) for each in grpo_credit(rewards, statistics=statistics)],
        )
        states = [[state for _, state, _ in episode] for episode in alone]
        assert_advantages(
            gigpo_per_agent_credit(rewards, states, agents, discount=0.9, statistics=statistics),
            [
                list(each.advantages)
                for each in gigpo_credit(rewards, states, discount=0.9, statistics=statistics)
            ],
        )


@given(groups)
def test_an_agents_advantages_add_up_to_nothing_and_ignore_other_agents(
    group: list[Episode],
) -> None:
    credits = of_gigpo(group, scale_by_std=False)
    totals: dict[str | None, float] = defaultdict(float)
    for episode, credit in zip(group, credits, strict=True):
        for (_, _, agent), advantage in zip(episode, credit.advantages, strict=True):
            totals[agent] += advantage
            assert agent is not None or advantage == 0
    assert all(abs(total) < 1e-9 for total in totals.values())

    # the same steps by the same agent, and other names for all that the others did
    def renamed(agent: str | None) -> str | None:
        return agent if agent == "red" else "other"

    others = of_gigpo(
        [[(r, s, renamed(agent)) for r, s, agent in episode] for episode in group],
        scale_by_std=False,
    )
    for episode, one, other in zip(group, credits, others, strict=True):
        for (_, _, agent), mine, theirs in zip(
            episode, one.advantages, other.advantages, strict=True
        ):
            assert agent != "red" or mine == theirs


@given(groups, st.booleans())
def test_matches_the_definition(group: list[Episode], by_row: bool) -> None:
    """One loop a definition: each step against all values of its agent."""
    credits = of_gigpo(group, discount=0.5, statistics="row" if by_row else "episode")
    returns = [sum(reward for reward, _, _ in episode) for episode in group]
    for number, episode in enumerate(group):
        for step, (_, state, agent) in enumerate(episode):
            outcomes, futures = list[float](), list[float]()
            took_part = 0
            for other, steps in enumerate(group):
                own = [place for place, one in enumerate(steps) if one[2] == agent]
                took_part += bool(own)
                outcomes += [returns[other]] * (len(own) if by_row else bool(own))
                futures += [to_go(steps, place) for place in own if steps[place][1] == state]
            expected = 0.0
            if agent is not None:
                if took_part > 1:
                    expected += standard(returns[number], outcomes)
                expected += standard(to_go(episode, step), futures)
            assert credits[number].advantages[step] == pytest.approx(expected, abs=1e-6)


def test_no_group_or_no_names_are_refused() -> None:
    rewards = [np.array([1.0]), np.array([0.0, 0.0])]
    with pytest.raises(GroupError, match="at least 2"):
        grpo_per_agent_credit(rewards[:1], [["a"]])
    with pytest.raises(ValueError, match="one agent per step"):
        grpo_per_agent_credit(rewards, [["a"], ["a"]])
    with pytest.raises(ValueError, match="one agent per step"):
        gigpo_per_agent_credit(rewards, [["x"], ["x", "x"]], [["a"], ["a"]], discount=0.9)


def rewards_of(group: list[Episode]) -> list[FloatArray]:
    return [np.array([reward for reward, _, _ in episode]) for episode in group]


def agents_of(group: list[Episode]) -> list[list[str | None]]:
    return [[agent for _, _, agent in episode] for episode in group]


def of_gigpo(
    group: list[Episode],
    *,
    discount: float = 0.9,
    scale_by_std: bool = True,
    statistics: Statistics = "row",
) -> tuple[EpisodeCredit, ...]:
    return gigpo_per_agent_credit(
        rewards_of(group),
        [[state for _, state, _ in episode] for episode in group],
        agents_of(group),
        discount=discount,
        scale_by_std=scale_by_std,
        statistics=statistics,
    )


def assert_advantages(credits: tuple[EpisodeCredit, ...], expected: list[list[float]]) -> None:
    """All of it is a step part."""
    assert [credit.episode_advantage for credit in credits] == [0.0] * len(expected)
    for credit, of_episode in zip(credits, expected, strict=True):
        assert credit.advantages == pytest.approx(of_episode, rel=1e-5, abs=1e-9)
        assert credit.step_advantages == credit.advantages


def to_go(episode: Episode, step: int) -> float:
    return sum(reward * 0.5**later for later, (reward, _, _) in enumerate(episode[step:]))


def standard(value: float, among: list[float]) -> float:
    spread = stdev(among) if len(among) > 1 else 0.0
    return (value - mean(among)) / (spread + 1e-6)
