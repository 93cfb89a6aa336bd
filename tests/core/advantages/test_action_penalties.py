"""Tests for a penalty of the invalid action alone: its row falls, and no return does."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.penalties import Penalties, action_penalties, penalised_rewards
from longhaul_core.audit.formulas import EpisodeFacts, credit_of

RECORDED = Path(__file__).parents[2] / "golden" / "action_penalties.json.gz"
"""What verl-agent's own functions make of random groups; `make_action_penalties.py` made it."""
TAKING = [name for name, estimator in ESTIMATORS.items() if estimator.penalises_actions]


def arrays(values: Sequence[Sequence[float]]) -> list[np.ndarray[Any, Any]]:
    return [np.array(of_steps, dtype=np.float64) for of_steps in values]


@cache
def recorded() -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


def as_verl_agent(group: dict[str, Any], name: str) -> list[list[float]]:
    """Advantages by our estimator, under the settings of the call of verl-agent's function."""
    episodes = group["episodes"]
    rewards = arrays([episode["rewards"] for episode in episodes])
    penalties = [group["penalty"] * ~np.array(episode["valid"]) for episode in episodes]
    states = [episode["states"] for episode in episodes]
    if name == "grpo":
        credits = grpo_credit(
            rewards,
            scale_by_std=group["scale_by_std"],
            statistics="row",
            action_penalties=penalties,
        )
    elif name == "gigpo":
        credits = gigpo_credit(
            rewards,
            states,
            discount=0.5,
            scale_by_std=group["scale_by_std"],
            statistics="row",
            action_penalties=penalties,
        )
    elif name == "hgpo":
        credits = hgpo_credit(
            rewards,
            states,
            discount=0.5,
            history_length=2,
            history_form="code",
            scale_by_std=group["scale_by_std"],
            action_penalties=penalties,
        )
    else:
        # A success pays 10 there, and 1 here: all in units of a tenth but for the step part.
        credits = graphgpo_credit(
            [of_steps / 10 for of_steps in rewards],
            states,
            [None if e["final"] == "success" else e["final"] for e in episodes],
            settings=GraphSettings(
                distance_decay=0.5,
                episode_advantage_weight=1.0 if group["scale_by_std"] else 10.0,
            ),
            scale_by_std=group["scale_by_std"],
            statistics="row",
            action_penalties=[of_steps / 10 for of_steps in penalties],
        )
    return [list(credit.advantages) for credit in credits]


@pytest.mark.parametrize("name", ["grpo", "gigpo", "graphgpo", "hgpo"])
def test_advantages_are_those_of_verl_agents_own_functions(name: str) -> None:
    groups = recorded()
    assert len(groups) == 2000
    # They calculate in float32; GraphGPO's adds 1e-6 to deviations of ten times the size.
    rounding = 1e-3 if name == "graphgpo" else 1e-5

    for group in groups:
        pairs = zip(as_verl_agent(group, name), group["advantages"][name], strict=True)
        for found, theirs in map(np.array, pairs):
            assert (np.abs(found - theirs) <= rounding * np.maximum(1, np.abs(theirs))).all()


def test_gigpo_by_hand() -> None:
    # Nobody succeeds; one action, the first episode's second, is invalid and costs 1.
    # A^E: copies of the returns are 0, -1, 0 and 0, mean -1/4. A^S: in a both go on alike; in b the
    # returns are -1 and 0, mean -1/2.
    credits = gigpo_credit(
        arrays([[0, 0], [0, 0]]),
        ["ab", "ab"],
        discount=0.5,
        scale_by_std=False,
        statistics="row",
        action_penalties=arrays([[0, 1], [0, 0]]),
    )

    assert [credit.advantages for credit in credits] == [(0.25, -1.25), (0.25, 0.75)]
    assert [credit.step_advantages for credit in credits] == [(0, -0.5), (0, 0.5)]
    assert [credit.episode_advantage for credit in credits] == [0.25, 0.25]
    assert [credit.returns_to_go for credit in credits] == [(0, 0), (0, 0)]


def test_each_episode_counts_once_whatever_its_length() -> None:
    # Returns 0 and 1; the first has three steps, one invalid for 3/2: its copies are 0, -3/2 and
    # 0, mean -1/2, and the mean of both episodes is 1/4.
    credits = grpo_credit(
        arrays([[0, 0, 0], [1]]), action_penalties=arrays([[0, 1.5, 0], [0]]), scale_by_std=True
    )

    deviation = ((1 / 16 + 49 / 16 + 1 / 16) / 3 + 9 / 16) ** 0.5
    assert credits[0].advantages == pytest.approx(
        [-0.25 / deviation, -1.75 / deviation, -0.25 / deviation], rel=1e-5
    )
    assert credits[1].advantages == pytest.approx([0.75 / deviation], rel=1e-5)


def test_hgpo_compares_returns_less_the_steps_own_penalty() -> None:
    # Two pasts alike throughout: at depth 0 and depth 1 the second step has -1 against 0.
    credits = hgpo_credit(
        arrays([[0, 0], [0, 0]]),
        ["ab", "ab"],
        discount=0.5,
        history_length=1,
        scale_by_std=False,
        action_penalties=arrays([[0, 1], [0, 0]]),
    )

    assert [credit.advantages for credit in credits] == [(0, -0.5), (0, 0.5)]


def test_a_penalty_is_on_the_action_or_on_the_return() -> None:
    settings = {
        "invalid_action_penalty": 0.5,
        "overlong_penalty": 0.0,
        "overlong_start_tokens": None,
        "overlong_end_tokens": None,
        "overlong_unit": "step",
    }
    on_action = Penalties.model_validate(settings | {"invalid_action_penalty_on": "action"})
    stored_before_there_was_a_choice = Penalties.model_validate(settings)

    assert action_penalties([True, False], on_action).tolist() == [0, 0.5]
    assert penalised_rewards([1, 1], [True, False], [1, 1], on_action).tolist() == [1, 1]
    assert action_penalties([True, False], stored_before_there_was_a_choice).tolist() == [0, 0]
    assert penalised_rewards(
        [1, 1], [True, False], [1, 1], stored_before_there_was_a_choice
    ).tolist() == [1, 0.5]


def test_a_step_without_a_penalty_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="one penalty per step is required"):
        drgrpo_credit(arrays([[0, 0], [0]]), action_penalties=arrays([[1], [0]]))


@st.composite
def groups(draw: st.DrawFn, *, least_reward: int = -2) -> Group:
    episodes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))

    def of_steps(strategy: st.SearchStrategy[Any]) -> list[list[Any]]:
        return [draw(st.lists(strategy, min_size=n, max_size=n)) for n in episodes]

    finals: st.SearchStrategy[str | None] = st.sampled_from(["a", "b", None])
    return Group(
        name="group",
        step_rewards=arrays(of_steps(st.integers(least_reward, 0).map(lambda r: r / 4))),
        anchor_states=of_steps(st.sampled_from("abc")),
        final_states=[draw(finals) for _ in episodes],
        num_action_tokens=[[1] * n for n in episodes],
        action_penalties=arrays(of_steps(st.sampled_from((0.0, 0.0, 0.125)))),
    )


def settings_of(name: str, *, scale_by_std: bool, statistics: str) -> EstimatorSettings:
    reads = ESTIMATORS[name].reads
    given: dict[str, object] = {"name": name, "scale_by_std": scale_by_std, "discount": 0.5}
    if "statistics" in reads:
        given["statistics"] = statistics
    if "history_form" in reads:
        given["history_form"] = "code" if statistics == "row" else "paper"
    if "distance_decay" in reads:
        given["distance_decay"] = 0.5
    return EstimatorSettings.model_validate(given)


@given(group=groups(), scale_by_std=st.booleans(), statistics=st.sampled_from(("episode", "row")))
def test_every_estimator_follows_the_naive_definition(
    group: Group, scale_by_std: bool, statistics: str
) -> None:
    facts = [
        EpisodeFacts(
            group=0,
            rewards=rewards.tolist(),
            anchors=states,
            num_action_tokens=[1] * len(states),
            final_anchor=final,
            action_penalties=penalties.tolist(),
        )
        for rewards, states, final, penalties in zip(
            group.step_rewards,
            group.anchor_states,
            group.final_states,
            group.action_penalties,
            strict=True,
        )
    ]

    for name in TAKING:
        settings = settings_of(name, scale_by_std=scale_by_std, statistics=statistics)
        [found] = ESTIMATORS[name].compute([group], settings)
        expected = credit_of(facts, settings.model_dump())

        for credit, defined in zip(found, expected, strict=True):
            assert credit.episode_advantage == pytest.approx(defined.episode_part, abs=1e-6), name
            assert credit.step_advantages == pytest.approx(defined.step_parts, abs=1e-6), name
            assert credit.advantages == pytest.approx(defined.advantages, abs=1e-6), name


@given(group=groups(least_reward=0), scale_by_std=st.booleans())
def test_where_nobody_is_paid_no_invalid_action_is_reinforced(
    group: Group, scale_by_std: bool
) -> None:
    failed = replace(group, final_states=["a"] * len(group.step_rewards))

    for name in TAKING:
        settings = settings_of(name, scale_by_std=scale_by_std, statistics="row")
        [found] = ESTIMATORS[name].compute([failed], settings)

        for credit, penalties in zip(found, group.action_penalties, strict=True):
            for advantage, penalty in zip(credit.advantages, penalties.tolist(), strict=True):
                assert advantage <= 1e-9 if penalty else advantage >= -1e-9, name
