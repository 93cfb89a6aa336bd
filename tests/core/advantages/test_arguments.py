"""What the advantage functions refuse, by name, instead of computing something else from it."""

import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages import (
    LossUnit,
    Statistics,
    Whiten,
    loss_weights,
    returns_to_go,
    whitened,
)
from longhaul_core.advantages.arguments import LARGEST
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae import gae_over_steps, gae_over_tokens
from longhaul_core.advantages.gae_credit import GaeLevel, gae_credit
from longhaul_core.advantages.gigpo import gigpo_credit
from longhaul_core.advantages.graphgpo import DistanceForm, GraphSettings, graphgpo_credit
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.hgpo import hgpo_credit
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from longhaul_core.advantages.whiten import step_counts

REWARDS = [np.array([0.0, 1.0]), np.array([2.0])]
STATES = [["a", "b"], ["a"]]
TOKENS = [[2, 1], [3]]
VALUES = [[np.zeros(2), np.zeros(1)], [np.zeros(3)]]
GIGPO: dict[str, Any] = {"step_rewards": REWARDS, "anchor_states": STATES, "discount": 0.5}
GAE: dict[str, Any] = {
    "step_rewards": REWARDS,
    "token_values": VALUES,
    "final_values": [None, None],
    "discount": 1.0,
    "gae_lambda": 1.0,
}
GRAPH: dict[str, Any] = GIGPO | {
    "final_states": [None, "b"],
    "settings": GraphSettings(),
}
STEPS: dict[str, Any] = GAE | {"values": [np.zeros(2), np.zeros(1)]}
del STEPS["token_values"]


def changed(given_to: dict[str, Any], **changes: object) -> dict[str, Any]:
    """Arguments with others in the place of some."""
    return given_to | changes


FUNCTIONS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "grpo": (grpo_credit, {"step_rewards": REWARDS}),
    "drgrpo": (drgrpo_credit, {"step_rewards": REWARDS}),
    "rloo": (rloo_credit, {"step_rewards": REWARDS}),
    "pass_at_k": (pass_at_k_credit, {"step_rewards": REWARDS}),
    "remax": (remax_credit, {"step_rewards": REWARDS, "greedy_return": 0.0}),
    "gigpo": (gigpo_credit, GIGPO),
    "hgpo": (hgpo_credit, GIGPO),
    "graphgpo": (graphgpo_credit, GRAPH),
    "reinforce_plus_plus": (
        reinforce_plus_plus_credit,
        {"step_rewards": REWARDS, "num_action_tokens": TOKENS},
    ),
    "reinforce_plus_plus_baseline": (
        reinforce_plus_plus_baseline_credit,
        {"step_rewards": REWARDS, "num_action_tokens": TOKENS, "groups": ["a", "a"]},
    ),
    "gae": (gae_credit, GAE | {"level": "step"}),
    "gae of tokens": (gae_credit, GAE | {"level": "token"}),
    "gae_over_steps": (gae_over_steps, STEPS),
    "gae_over_tokens": (gae_over_tokens, GAE),
    "returns_to_go": (returns_to_go, {"step_rewards": REWARDS, "discount": 1.0}),
}
"""The public functions that take rewards, and a call that each accepts."""

CHOICES: list[tuple[Callable[..., object], dict[str, Any], str, object]] = [
    (grpo_credit, FUNCTIONS["grpo"][1], "statistics", Statistics),
    (gigpo_credit, GIGPO, "statistics", Statistics),
    (graphgpo_credit, GRAPH, "statistics", Statistics),
    (GraphSettings, {}, "distance_form", DistanceForm),
    *(
        (*FUNCTIONS[name], "whiten", Whiten)
        for name in ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "gae")
    ),
    (step_counts, {"num_action_tokens": TOKENS}, "whiten", Whiten),
    (gae_credit, GAE, "level", GaeLevel),
    (loss_weights, {"num_action_tokens": TOKENS}, "loss_unit", LossUnit),
]


@pytest.mark.parametrize(("function", "given_to", "name", "choices"), CHOICES)
@given(wrong=st.text(max_size=8))
def test_a_choice_that_there_is_not_is_refused_with_those_there_are(
    function: Callable[..., object],
    given_to: dict[str, Any],
    name: str,
    choices: object,
    wrong: str,
) -> None:
    allowed = get_args(choices)
    if wrong in allowed:
        return
    with pytest.raises(ValueError, match=f"{name} must be one of") as refused:
        function(**given_to | {name: wrong})

    assert str(refused.value).endswith(f"{', '.join(map(repr, allowed))}, got {wrong!r}")


@pytest.mark.parametrize("name", FUNCTIONS)
@given(reward=st.floats(LARGEST, math.inf, exclude_min=True), sign=st.sampled_from([1, -1]))
def test_a_reward_whose_sums_and_squares_overflow_is_named(
    name: str, reward: float, sign: int
) -> None:
    function, given_to = FUNCTIONS[name]
    rewards = [np.array([0.0, 1.0]), np.array([sign * reward])]

    with pytest.raises(ValueError, match=r"reward of episode 1, step 0 must be .*, got"):
        function(**given_to | {"step_rewards": rewards})


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    rewards=st.tuples(*[st.floats(-LARGEST / 8, LARGEST / 8)] * 3),
)
def test_what_is_not_refused_gives_numbers(name: str, rewards: tuple[float, float, float]) -> None:
    """An eighth leaves room for what sums of rewards are compared with."""
    function, given_to = FUNCTIONS[name]
    given_rewards = [np.array(rewards[:2]), np.array(rewards[2:])]
    found: Any = function(**changed(given_to, step_rewards=given_rewards))

    for episode in found:
        numbers: Any = getattr(episode, "advantages", episode)  # or an array of returns
        for part in numbers:  # a step's number, or those of its tokens
            assert np.isfinite(part).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, 1e101])
def test_a_weight_that_weighs_nothing_sensible_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"step_advantage_weight must lie in \[0, 1e\+100\], got"):
        gigpo_credit(**GIGPO, step_advantage_weight=wrong)
    with pytest.raises(ValueError, match=r"episode_advantage_weight must lie in \[0, 1e\+100\]"):
        GraphSettings(episode_advantage_weight=wrong)
    with pytest.raises(ValueError, match=r"count.* must "):
        whitened(np.array([1.0, 2.0]), np.array([3.0, wrong]))
    with pytest.raises(ValueError, match="history_weight_exponent must be finite"):
        hgpo_credit(**GIGPO, history_weight_exponent=1e3 if wrong == 1e101 else wrong)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e308])
def test_values_and_baselines_that_overflow_are_named(wrong: float) -> None:
    with pytest.raises(ValueError, match="value, place 1 must be"):
        whitened(np.array([1.0, wrong]), np.array([3.0, 1.0]))
    with pytest.raises(ValueError, match="greedy_return must be"):
        remax_credit(REWARDS, greedy_return=wrong)
    with pytest.raises(ValueError, match="values of episode 1, place 0 must be"):
        gae_over_steps(**changed(STEPS, values=[np.zeros(2), np.array([wrong])]))
    with pytest.raises(ValueError, match="final value of episode 0 must be"):
        gae_over_tokens(**changed(GAE, final_values=[wrong, None]))


def test_a_count_for_each_value_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"one count per value .* shapes \(2,\) and \(1,\)"):
        whitened(np.zeros(2), np.ones(1))
