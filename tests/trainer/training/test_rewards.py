"""Tests for `longhaul_trainer.training.rewards`: what a step is credited with."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.training.rewards import (
    overlong_share,
    refuse_hook_errors,
    shaped_rewards,
    with_reference_kl,
)
from longhaul_trainer.training.step_metadata import StepMetadata


def note(
    reward: float,
    *,
    tokens: int = 1,
    valid: bool = True,
    reference_kl: float = 0.0,
    start: int = 0,
) -> StepMetadata:
    return StepMetadata(
        environment="fakes/Counting-v0",
        task_id="task",
        training_step=3,
        group_index=0,
        policy_version=0,
        sample_index=0,
        retry=0,
        horizon=20,
        step=0,
        num_steps=1,
        reward=reward,
        action_valid=valid,
        anchor="",
        success=False,
        episode_return=reward,
        prompt_tokens=1,
        action_tokens=tokens,
        start=start,
        split_reason=None,
        reference_kl=reference_kl,
    )


def algorithm(**settings: object) -> AlgorithmConfig:
    return AlgorithmConfig.model_validate(settings)


OVERLONG: dict[str, object] = {
    "overlong_penalty": 0.5,
    "overlong_start_tokens": 6,
    "overlong_end_tokens": 10,
}


@pytest.mark.parametrize(
    ("num_tokens", "share"), [(0, 0.0), (6, 0.0), (7, 0.25), (8, 0.5), (10, 1.0), (99, 1.0)]
)
def test_the_overlong_share_rises_between_the_two_lengths(num_tokens: int, share: float) -> None:
    assert overlong_share(num_tokens, start=6, end=10) == share


@given(st.integers(0, 100), st.integers(0, 50), st.integers(1, 50))
def test_the_overlong_share_is_dapos_penalty_with_the_sign_turned(
    num_tokens: int, expected_length: int, cache: int
) -> None:
    """The paper's three cases, with L_max = expected length + cache."""
    longest = expected_length + cache
    if num_tokens <= longest - cache:
        penalty = 0.0
    elif num_tokens <= longest:
        penalty = ((longest - cache) - num_tokens) / cache
    else:
        penalty = -1.0

    share = overlong_share(num_tokens, start=expected_length, end=longest)

    assert share == pytest.approx(-penalty)


def test_lengths_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="end must be above start = 6, got 6"):
        overlong_share(1, start=6, end=6)


def test_a_run_without_penalties_credits_the_environments_rewards() -> None:
    episode = [note(1.0, valid=False, tokens=99), note(0, reference_kl=3.0)]

    np.testing.assert_array_equal(shaped_rewards(episode, algorithm()), [1.0, 0.0])


def test_each_reply_pays_for_its_own_length() -> None:
    episode = [note(1.0, tokens=6), note(0.0, tokens=8), note(2.0, tokens=40)]

    found = shaped_rewards(episode, algorithm(**OVERLONG))

    # shares 0, (8 - 6) / 4 = 1/2 and 1, of a penalty of 1/2
    np.testing.assert_allclose(found, [1.0, -0.25, 1.5])


def test_an_episode_pays_for_all_its_replies_with_its_last_step() -> None:
    episode = [note(1.0, tokens=3), note(0.0, tokens=2), note(2.0, tokens=4)]

    found = shaped_rewards(episode, algorithm(**OVERLONG, overlong_unit="episode"))

    # 9 tokens: share (9 - 6) / 4 = 3/4 of a penalty of 1/2
    np.testing.assert_allclose(found, [1.0, 0.0, 1.625])


def test_penalties_add_up() -> None:
    settings = OVERLONG | {"invalid_action_penalty": 0.1, "reward_kl_coefficient": 0.2}

    found = shaped_rewards(
        [note(1.0, tokens=8, valid=False, reference_kl=1.5)], algorithm(**settings)
    )

    # 1 - 0.1 - 0.5 / 2 - 0.2 * 1.5
    np.testing.assert_allclose(found, [0.35])


def test_the_divergence_of_a_step_is_the_sum_over_its_actions_tokens() -> None:
    notes = {
        "a": (note(0.0, tokens=2), note(1.0, tokens=1, start=3)),  # a gap of one token
        "b": (note(0.0),),
        "left out": (note(0.0),),
    }
    policy = {"a": torch.tensor([0.5, 0.5, 0.5, 0.5]).log(), "b": torch.tensor([0.5]).log()}
    reference = {"a": torch.tensor([0.25, 0.5, 0.01, 0.125]).log(), "b": torch.tensor([1.0]).log()}

    found = with_reference_kl(notes, policy=policy, reference=reference, kind="k1")

    # log 2 + 0 and, past the gap, log 4; -log 2; and a row that is not trained has none
    steps = [step for row in found.values() for step in row]
    expected = [math.log(2), math.log(4), -math.log(2), 0]
    assert [step.reference_kl for step in steps] == pytest.approx(expected)
    without = {key: tuple(n._replace(reference_kl=0.0) for n in row) for key, row in found.items()}
    assert without == notes


def test_the_kind_of_estimate_is_the_one_asked_for() -> None:
    policy = {"a": torch.tensor([0.5]).log()}
    reference = {"a": torch.tensor([0.25]).log()}

    found = with_reference_kl({"a": (note(0.0),)}, policy=policy, reference=reference, kind="k3")

    # 1/2 - 1 + log 2
    assert found["a"][0].reference_kl == pytest.approx(math.log(2) - 0.5)


def test_the_runs_own_reward_takes_the_place_of_the_environments_and_pays_penalties() -> None:
    steps = [
        note(1.0)._replace(hook_reward=0.25),
        note(1.0, valid=False)._replace(hook_reward=-0.5),
    ]

    found = shaped_rewards(steps, algorithm(invalid_action_penalty=0.1))

    assert found == pytest.approx([0.25, -0.6])


def test_what_the_runs_own_function_did_not_give_ends_the_run() -> None:
    refuse_hook_errors({"a": (note(1.0),)})

    with pytest.raises(ConfigError, match="mine:shape gave 1 rewards"):
        refuse_hook_errors(
            {"a": (note(1.0), note(1.0)._replace(hook_error="mine:shape gave 1 rewards"))}
        )
