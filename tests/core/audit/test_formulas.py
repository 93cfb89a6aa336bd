"""Tests for `longhaul_core.audit.formulas`: hand-worked numbers and the widest definitions."""

import itertools
import json
from collections import Counter
from math import fsum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import Statistics
from longhaul_core.advantages.per_agent import gigpo_per_agent_credit
from longhaul_core.audit.formulas import (
    EpisodeFacts,
    clusters,
    credit_of,
    lead,
    longest_common_subsequence,
    penalised_rewards,
    returns_to_go,
    weights_of,
)
from longhaul_core.audit.horizons import scheduled_horizons
from longhaul_core.audit.intent import Horizons, Intent
from longhaul_core.errors import StoreError
from longhaul_core.horizons import HorizonState, SuccessGatedHorizon
from longhaul_core.store.queries import HorizonOutcomes
from longhaul_core.types import GroupOutcome, TaskKey
from longhaul_trainer.config import load_default_config

SETTINGS: dict[str, Any] = {
    "name": "grpo",
    "discount": 1.0,
    "scale_by_std": False,
    "step_advantage_weight": 1.0,
    "episode_advantage_weight": 1.0,
    "statistics": "episode",
    "anchor_similarity": None,
    "distance_decay": 0.1,
    "distance_form": "proximity",
    "history_length": 2,
    "history_weight_exponent": 1.0,
    "whiten": "token",
    "gae_level": "step",
    "gae_lambda": 1.0,
    "pass_k": None,
    "loss_unit": "token",
    "tokens_per_episode": None,
    "invalid_action_penalty": 0.0,
    "overlong_penalty": 0.0,
    "overlong_start_tokens": None,
    "overlong_end_tokens": None,
    "overlong_unit": "step",
    "reward_kl_coefficient": 0.0,
    "reward_shaping": None,
}


def algorithm(**settings: object) -> dict[str, Any]:
    """The `[algorithm]` section of a stored configuration."""
    return SETTINGS | settings


def horizons(**settings: object) -> Horizons:
    table: dict[str, Any] = {
        "kind": "fixed",
        "final": 9,
        "stages": (),
        "training_steps_per_stage": 2,
        "start": 1,
        "end_training_step": 5,
        "success_threshold": 0.5,
        "success_window": 2,
    }
    table.update(settings)
    return Horizons(**table)


def episode(
    rewards: list[float], *, group: int = 0, anchors: str = "", tokens: list[int] | None = None
) -> EpisodeFacts:
    return EpisodeFacts(
        group=group,
        rewards=rewards,
        anchors=list(anchors) or [str(number) for number in range(len(rewards))],
        num_action_tokens=tokens or [1] * len(rewards),
    )


def advantages(episodes: list[EpisodeFacts], **settings: object) -> list[list[float]]:
    return [credit.advantages for credit in credit_of(episodes, algorithm(**settings))]


def test_grpo_by_hand() -> None:
    # Returns 3 and 1, mean 2, sample deviation sqrt(2).
    found = advantages([episode([1, 2]), episode([1])], scale_by_std=True)

    assert found == [[pytest.approx(2**-0.5, abs=1e-6)] * 2, [pytest.approx(-(2**-0.5), abs=1e-6)]]


def test_a_baseline_over_rows_counts_long_episodes_more() -> None:
    # Rows: 3, 3, 0: mean 2.
    assert advantages([episode([1, 2]), episode([0])], statistics="row") == [[1, 1], [-2]]


def test_groups_are_apart_and_credit_keeps_the_order() -> None:
    mixed = [episode([4], group=1), episode([1]), episode([2], group=1), episode([3])]

    assert advantages(mixed) == [[1], [-1], [-1], [1]]


def test_rloo_compares_with_the_others() -> None:
    found = advantages([episode([3]), episode([0]), episode([1.5])], name="rloo")

    assert found == [[2.25], [-2.25], [0]]


def test_remax_compares_with_the_greedy_episode() -> None:
    pair = [
        episode([1, 2])._replace(greedy_rewards=[0.5, 1.5]),
        episode([1])._replace(greedy_rewards=[0.5, 1.5]),
    ]

    assert advantages(pair, name="remax") == [[1, 1], [-1]]


def test_gigpo_by_hand() -> None:
    # Discount 0.5; returns-to-go 1, 2 | 0, 0. Episodes ±1; state a {1, 0}: ±0.5; b is met once.
    pair = [episode([0, 2], anchors="ab"), episode([0, 0], anchors="ac")]

    found = advantages(pair, name="gigpo", discount=0.5, step_advantage_weight=2.0)

    assert found == [[2, 1], [-2, -1]]


@pytest.mark.parametrize("level", ["step", "token"])
def test_gae_passes_through_a_step_that_nobody_is_trained_in(level: str) -> None:
    # The second step is worth 2 + 0.5 * 1 = 2.5. Errors 1.75, 0, 3, at a rate of 0.25.
    (credit,) = credit_of(
        [
            episode([1, 2, 4], tokens=[1, 0, 1])._replace(values=[[0.5], [], [1.0]]),
        ],
        algorithm(name="gae", discount=0.5, gae_lambda=0.5, gae_level=level),
    )

    assert credit.value_targets == [2.4375, 3.25, 4.0]
    # Whitened over the two tokens alone: 1.9375 and 3.
    assert [credit.advantages[0], credit.advantages[2]] == pytest.approx([-(0.5**0.5), 0.5**0.5])


SEARCH: list[tuple[list[float], str, list[str | None]]] = [
    ([0, 0, 10], "sdd", ["searcher", "searcher", "writer"]),
    ([0, 0], "sd", ["searcher", "writer"]),
    ([4, 0], "ds", ["writer", None]),
]
"""Of each episode the rewards, states and agents."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # searcher {10, 10, 0}: mean 20/3; writer {10, 0, 4}: mean 14/3
        ("grpo", [[10 / 3, 10 / 3, 16 / 3], [-20 / 3, -14 / 3], [-2 / 3, 0]]),
        # discount 0.5: searcher at s {2.5, 0}, at d alone; writer at d {10, 0, 4}
        ("gigpo", [[10 / 3 + 1.25, 10 / 3, 32 / 3], [-20 / 3 - 1.25, -28 / 3], [-4 / 3, 0]]),
    ],
)
def test_each_agents_baseline_by_hand(name: str, expected: list[list[float]]) -> None:
    group = [episode(r, anchors=s)._replace(agents=agents) for r, s, agents in SEARCH]
    found = advantages(group, name=name, discount=0.5, statistics="row", baseline_per_agent=True)
    for one, hand in zip(found, expected, strict=True):
        assert one == pytest.approx(hand)


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(-8, 8), st.sampled_from("sd"), st.sampled_from(["a", "b", None])),
            min_size=1,
            max_size=5,
        ),
        min_size=2,
        max_size=4,
    ),
    st.sampled_from(["row", "episode"]),
    st.booleans(),
)
def test_both_implementations_of_each_agents_baseline_agree(
    group: list[list[tuple[int, str, str | None]]], statistics: Statistics, scale_by_std: bool
) -> None:
    facts = [
        episode(
            [float(reward) for reward, _, _ in steps], anchors="".join(s for _, s, _ in steps)
        )._replace(agents=[agent for _, _, agent in steps])
        for steps in group
    ]
    found = advantages(
        facts,
        name="gigpo",
        discount=0.5,
        statistics=statistics,
        scale_by_std=scale_by_std,
        baseline_per_agent=True,
    )
    trained = gigpo_per_agent_credit(
        [np.array(one.rewards) for one in facts],
        [one.anchors for one in facts],
        [one.agents for one in facts],
        discount=0.5,
        statistics=statistics,
        scale_by_std=scale_by_std,
    )
    for one, other in zip(found, trained, strict=True):
        assert one == pytest.approx(list(other.advantages), abs=1e-6)


@pytest.mark.parametrize(("form", "from_a"), [("proximity", 1.25), ("progress", 2.5)])
def test_graphgpo_by_hand(form: str, from_a: float) -> None:
    # The goal is 1 step from b, 2 from a and d. With decay 0.5 a step to it is worth 10, to b 5, to
    # a or d 2.5: from a 5 and 2.5, from b 10 and, cut short, 2.5; d is left once. By progress from
    # a 10 (to b, 1 nearer) and 5 (to d, as far), from b 10 and 2.5.
    pair = [
        episode([0, 1], anchors="ab"),
        episode([0, 0, 0], anchors="adb")._replace(final_anchor="a"),
    ]

    found = advantages(
        pair,
        name="graphgpo",
        distance_decay=0.5,
        distance_form=form,
        episode_advantage_weight=2.0,
    )

    assert found == [[1 + from_a, 1 + 3.75], [-1 - from_a, -1, -1 - 3.75]]


def test_pairs_of_episodes_by_hand() -> None:
    """Of two groups three pairs of five episodes with tokens, and one without any."""
    episodes = [
        episode([0.0, 1.0])._replace(gains=[0.75, -0.25]),
        episode([0.0])._replace(gains=[0.1]),
        episode([0.25, 0.25])._replace(gains=[-0.2, -0.1]),
        episode([2.0], group=1)._replace(gains=[1.0]),
        episode([0.0], group=1)._replace(gains=[1.0]),
        episode([2.0], group=1)._replace(gains=[9.0], num_action_tokens=[0]),
    ]

    dpo: dict[str, object] = {"name": "dpo", "pairs": "episodes", "beta": 0.5}

    found = advantages(episodes, **dpo, min_gap=1e-6, pairs_per_task=2)

    # σ(-0.5 · 0.4) = 0.450166, σ(-0.5 · 0.8) = 0.401312, σ(0) = 0.5; five episodes of three pairs
    won, lost, even = (0.5 * push * 5 / 3 for push in (0.450166, 0.401312, 0.5))
    expected = [won + lost, -won, -lost, even, -even, 0.0]
    assert [of_steps[0] for of_steps in found] == pytest.approx(expected, abs=1e-6)
    assert found[0] == [found[0][0]] * 2
    alone = advantages(episodes, **dpo, min_gap=0.75, pairs_per_task=1)
    assert [bool(of_steps[0]) for of_steps in alone] == [True, True, False, True, True, False]


def test_pairs_of_steps_by_hand() -> None:
    """In `hall` left won 1 and right 0; in `room` both did the same; a state of None has none."""
    episodes = [
        episode([0.0, 1.0])._replace(
            gains=[0.2, 5.0], choices=[("hall", "left"), ("room", "open")]
        ),
        episode([0.0, 0.0, 0.0])._replace(
            gains=[-0.2, 5.0, 7.0], choices=[("hall", "right"), ("room", "open"), (None, "out")]
        ),
    ]
    dpo: dict[str, object] = {"name": "dpo", "pairs": "steps", "beta": 0.5}

    [won, lost] = advantages(episodes, **dpo, min_gap=1e-6, pairs_per_task=1)

    part = 0.450166  # β σ(-β · 0.4) · N / P, of two episodes and one pair: 0.5 · σ(-0.2) · 2 / 1
    assert won == pytest.approx([part, 0.0], abs=1e-6)
    assert lost == pytest.approx([-part, 0.0, 0.0], abs=1e-6)
    assert advantages(episodes, **dpo, min_gap=1.5, pairs_per_task=1) == [[0.0] * 2, [0.0] * 3]


def test_graphgpo_joins_states_that_read_alike() -> None:
    pair = [
        episode([1])._replace(anchors=["room 1"]),
        episode([0])._replace(anchors=["room 2"], final_anchor="pond"),
    ]
    joined = {"name": "graphgpo", "distance_decay": 0.5, "anchor_similarity": 0.8}

    # A room is 1 step from the goal, the pond counts as 2: worth 10 and 2.5.
    assert advantages(pair, **joined) == [[0.5 + 3.75], [-0.5 - 3.75]]
    assert advantages(pair, **joined | {"anchor_similarity": None}) == [[0.5], [-0.5]]


def test_hgpo_by_hand() -> None:
    # Returns-to-go 2, 2 | 0, 0. Depth 0: a {2, 0}, b {2, 0}; depth 1: ab {2, 0}. Weights 1 and 2.
    pair = [episode([0, 2], anchors="ab"), episode([0, 0], anchors="ab")]

    assert advantages(pair, name="hgpo", history_length=1) == [[1, 1], [-1, -1]]


def test_reinforce_plus_plus_whitens_over_tokens() -> None:
    # Values 1 (three tokens) and 0 (one): mean 0.75, variance (3/16 + 9/16) / 3 = 0.25.
    pair = [episode([1], tokens=[3]), episode([0], tokens=[1])]

    [[first], [second]] = advantages(pair, name="reinforce_plus_plus")

    assert first == pytest.approx(0.5, abs=1e-6)
    assert second == pytest.approx(-1.5, abs=1e-6)


@given(
    returns=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=2, max_size=6),
    data=st.data(),
)
def test_a_lead_is_the_mean_over_all_draws(returns: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(returns) - 1))
    drawn = data.draw(st.integers(1, len(returns) - 1))
    others = returns[:place] + returns[place + 1 :]
    draws = [max(0.0, returns[place] - max(c)) for c in itertools.combinations(others, drawn)]

    assert lead(returns[place], returns, drawn) == pytest.approx(fsum(draws) / len(draws))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("token", [[1 / 6, 1 / 6, 0], [1 / 6]]),
        ("step", [[1 / 3, 1 / 6, 0], [1 / 9]]),
        ("episode", [[1 / 6, 1 / 6, 0], [1 / 6]]),
        ("fixed_token", [[1 / 20, 1 / 20, 0], [1 / 20]]),
    ],
)
def test_loss_weights_by_hand(unit: str, expected: list[list[float]]) -> None:
    settings = algorithm(loss_unit=unit, tokens_per_episode=10 if unit == "fixed_token" else None)

    found = weights_of([[1, 2, 0], [3]], settings)

    assert [pytest.approx(weights) for weights in expected] == found


def test_penalties_are_taken_off_rewards() -> None:
    settings = algorithm(
        invalid_action_penalty=0.5,
        overlong_penalty=1.0,
        overlong_start_tokens=10,
        overlong_end_tokens=20,
    )

    assert penalised_rewards([1, 1, 1], [True, False, True], [10, 15, 30], settings) == [1, 0, 0]
    assert returns_to_go([1, 0, 4], 0.5) == [2, 2, 4]


def test_states_that_read_alike_are_one() -> None:
    # "abcd" and "abce" share 3 of 4 characters: 0.75.
    found = clusters({"abce", "abcd", "xyz"}, threshold=0.75)

    assert found == {"abcd": "abcd", "abce": "abcd", "xyz": "xyz"}
    assert clusters({"abce", "abcd"}, threshold=0.76)["abce"] == "abce"


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_the_longest_common_subsequence_is_one_of_both(one: str, other: str) -> None:
    def subsequences(text: str) -> set[str]:
        chosen = itertools.product((False, True), repeat=len(text))
        return {"".join(itertools.compress(text, keep)) for keep in chosen}

    shared = subsequences(one) & subsequences(other)

    assert longest_common_subsequence(one, other) == max(map(len, shared))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [9] * 6),
        ({"kind": "stepwise", "stages": (3, 6, 9)}, [3, 3, 6, 6, 9, 9]),
        ({"kind": "linear"}, [1, 3, 5, 7, 9, 9]),
    ],
)
def test_horizons_of_a_schedule(settings: dict[str, Any], expected: list[int]) -> None:
    assert scheduled_horizons(horizons(**settings), (), num_training_steps=6) == expected


def test_a_gated_horizon_by_hand() -> None:
    """Half of the episodes of two training steps of a stage must be solved."""
    outcomes = [
        HorizonOutcomes(1, 3, 4, 4),  # all, but the window is not full
        HorizonOutcomes(2, 3, 0, 5),  # 4 of 9
        HorizonOutcomes(3, 3, 5, 5),  # 5 of 10: on to 6
        HorizonOutcomes(4, 3, 0, 4),  # begun at another horizon
        HorizonOutcomes(4, 6, 2, 2),
        # 5: nothing ended
        HorizonOutcomes(6, 6, 0, 2),  # 2 of 4: on to 9
        HorizonOutcomes(7, 9, 0, 4),
    ]

    found = scheduled_horizons(
        horizons(kind="success_gated", stages=(3, 6, 9)), outcomes, num_training_steps=8
    )

    assert found == [3, 3, 3, 6, 6, 6, 9, 9]


@given(
    outcomes=st.lists(
        st.lists(st.tuples(st.sampled_from((1, 2, 4, 7)), st.integers(0, 4)), max_size=3),
        max_size=12,
    ),
    window=st.integers(1, 3),
    threshold=st.sampled_from((0.25, 0.5, 0.7, 1.0)),
)
def test_both_implementations_of_a_gated_horizon_agree(
    outcomes: list[list[tuple[int, int]]], window: int, threshold: float
) -> None:
    stages = (2, 4, 7)
    schedule = SuccessGatedHorizon(stages=stages, threshold=threshold, window=window)
    state, expected = HorizonState(), list[int]()
    totals: Counter[tuple[int, int]] = Counter()
    solved: Counter[tuple[int, int]] = Counter()
    for number, groups in enumerate(outcomes, start=1):
        expected.append(schedule.horizon(number, state))
        state = schedule.after(
            state,
            [
                GroupOutcome(
                    task=TaskKey("e", "t"), horizon=h, num_successes=successes, num_episodes=4
                )
                for h, successes in groups
            ],
        )
        for h, successes in groups:
            totals[number, h] += 4
            solved[number, h] += successes

    found = scheduled_horizons(
        horizons(
            kind="success_gated",
            stages=stages,
            success_threshold=threshold,
            success_window=window,
        ),
        [HorizonOutcomes(*place, solved[place], played) for place, played in totals.items()],
        num_training_steps=len(outcomes),
    )

    assert found == expected


def test_a_configuration_without_what_was_meant_is_refused_by_name() -> None:
    with pytest.raises(StoreError, match="run 'r' in the store has no 'loss'"):
        Intent.from_json(json.dumps({"algorithm": {}, "rollout": {}}), run_id="r")


def test_a_setting_that_the_stored_algorithm_lacks_is_refused_by_name_where_it_is_read() -> None:
    config = load_default_config().model_dump(mode="json")
    del config["algorithm"]["gae_lambda"]
    of_gigpo = Intent.from_json(json.dumps(config), run_id="r").algorithm
    config["algorithm"]["name"] = "gae"
    of_gae = Intent.from_json(json.dumps(config), run_id="r").algorithm

    assert credit_of([episode([1]), episode([0])], of_gigpo)  # which reads no lambda
    with pytest.raises(StoreError, match=r"no algorithm\.gae_lambda: it was not written by"):
        credit_of([valued([0, 2], [[0.0], [1.0]])], of_gae)


def valued(rewards: list[float], values: list[list[float]], final: float = 0.0) -> EpisodeFacts:
    tokens = [len(of_step) for of_step in values]
    return episode(rewards, tokens=tokens)._replace(values=values, final_value=final)


def test_gae_over_steps_by_hand() -> None:
    # Discount 0.5, decay 0.5. First: delta 1 = 2 - 1 = 1; delta 0 = 0 + 0.5 * 1 - 0 = 0.5, and
    # A 0 = 0.5 + 0.25 * 1 = 0.75. Second, cut: delta = 0 + 0.5 * 4 - 0 = 2.
    pair = [valued([0, 2], [[0.0], [1.0]]), valued([0], [[0.0]], final=4.0)]

    first, second = credit_of(pair, algorithm(name="gae", discount=0.5, gae_lambda=0.5))

    assert first.value_targets == [0.75, 2.0]
    assert second.value_targets == [2.0]
    mean, std = 1.25, (((-0.5) ** 2 + 0.25**2 + 0.75**2) / 2) ** 0.5
    assert first.advantages == pytest.approx([(0.75 - mean) / std, (1 - mean) / std], abs=1e-6)
    assert second.advantages == pytest.approx([(2 - mean) / std], abs=1e-6)


def test_whitening_leaves_nothing_of_a_lone_episode() -> None:
    lone = [valued([0, 4], [[0.0], [1.0]])]

    [found] = credit_of(lone, algorithm(name="gae", whiten="episode"))

    assert found.advantages == [0.0, 0.0]
    assert found.value_targets == [4.0, 4.0]


def test_gae_over_tokens_loses_nothing_inside_an_action() -> None:
    # Discount 0.5, decay 1. The second action: 4 - 1 = 3 at its only token; the first one's two
    # tokens: 0.5 * 4 less their values, 2 and 1. Targets 2 and 4.
    lone = [valued([0, 4], [[0.0, 1.0], [1.0]])]

    [found] = credit_of(lone, algorithm(name="gae", gae_level="token", discount=0.5))

    assert found.value_targets == [2.0, 4.0]
    assert found.token_advantages is not None
    [[one, two], [three]] = found.token_advantages
    assert [one, two, three] == pytest.approx([0.0, -1.0, 1.0], abs=1e-6)
    assert found.advantages == pytest.approx([-0.5, 1.0], abs=1e-6)
