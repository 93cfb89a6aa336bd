"""Tests for `longhaul_trainer.training.rewards`: what a step is credited with."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.advantages.penalties import overlong_share
from longhaul_core.errors import ConfigError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.losses.kl import KlKind
from longhaul_trainer.training.rewards import (
    reference_divergences,
    refuse_hook_errors,
    shaped_rewards,
)
from longhaul_trainer.training.step_metadata import (
    Episode,
    GroupName,
    PlayedEpisode,
    played_episodes,
)
from row_metadata import MadeUpStep, rows_of


def episode(*steps: MadeUpStep, per_row: int = 1, hook_error: str = "") -> PlayedEpisode:
    rows = rows_of(GroupName(3, 0), 0, steps, per_row=per_row, hook_error=hook_error)
    return played_episodes(rows)[Episode("train-3-0", 0)]


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
    played = episode({"reward": 1.0, "valid": False, "tokens": 99}, {"reward": 0.0})

    np.testing.assert_array_equal(shaped_rewards(played, algorithm()), [1.0, 0.0])


def test_each_reply_pays_for_its_own_length() -> None:
    played = episode(
        {"reward": 1.0, "tokens": 6}, {"reward": 0.0, "tokens": 8}, {"reward": 2.0, "tokens": 40}
    )

    found = shaped_rewards(played, algorithm(**OVERLONG))

    # shares 0, (8 - 6) / 4 = 1/2 and 1, of a penalty of 1/2
    np.testing.assert_allclose(found, [1.0, -0.25, 1.5])


def test_the_trained_calls_of_a_step_are_as_long_together_as_one_reply() -> None:
    played = episode(
        {"reward": 1.0, "calls": (5, 3)},
        {"reward": 1.0, "calls": (90, 8), "trained": (False, True)},
    )

    found = shaped_rewards(played, algorithm(**OVERLONG))

    np.testing.assert_allclose(found, [0.75, 0.75])


def test_an_episode_pays_for_all_its_replies_with_its_last_step() -> None:
    played = episode(
        {"reward": 1.0, "tokens": 3}, {"reward": 0.0, "tokens": 2}, {"reward": 2.0, "tokens": 4}
    )

    found = shaped_rewards(played, algorithm(**OVERLONG, overlong_unit="episode"))

    # 9 tokens: share (9 - 6) / 4 = 3/4 of a penalty of 1/2
    np.testing.assert_allclose(found, [1.0, 0.0, 1.625])


def test_penalties_add_up() -> None:
    settings = OVERLONG | {
        "invalid_action_penalty": 0.1,
        "invalid_action_penalty_on": "return",
        "reward_kl_coefficient": 0.2,
    }

    found = shaped_rewards(
        episode({"reward": 1.0, "tokens": 8, "valid": False}),
        algorithm(**settings),
        reference_kl=np.array([1.5]),
    )

    # 1 - 0.1 - 0.5 / 2 - 0.2 * 1.5
    np.testing.assert_allclose(found, [0.35])


def divergences(
    played: PlayedEpisode, policy: list[list[float]], reference: list[list[float]], *, kind: KlKind
) -> list[float]:
    """Of each step, from the probabilities of the tokens of each row."""
    name = Episode("train-3-0", 0)
    found = reference_divergences(
        {name: played},
        policy={f"train-3-0_0_{n}": torch.tensor(row).log() for n, row in enumerate(policy)},
        reference={f"train-3-0_0_{n}": torch.tensor(row).log() for n, row in enumerate(reference)},
        kind=kind,
    )
    return found[name].tolist()


def test_the_divergence_of_a_step_is_the_sum_over_the_tokens_of_its_calls() -> None:
    # a gap of three tokens between the calls of a row
    played = episode({"reward": 0.0, "tokens": 2}, {"reward": 1.0, "calls": (1, 1)}, per_row=2)

    found = divergences(
        played,
        [[0.5] * 6, [0.5]],
        [[0.25, 0.5, 0.01, 0.01, 0.01, 0.125], [1.0]],
        kind="k1",
    )

    # log 2 + 0; and, past the gap, log 4 of the first call and -log 2 of the second
    assert found == pytest.approx([math.log(2), math.log(4) - math.log(2)])


def test_the_kind_of_estimate_is_the_one_asked_for() -> None:
    found = divergences(episode({"reward": 0.0, "tokens": 1}), [[0.5]], [[0.25]], kind="k3")

    # 1/2 - 1 + log 2
    assert found == pytest.approx([math.log(2) - 0.5])


def test_the_runs_own_reward_takes_the_place_of_the_environments_and_pays_penalties() -> None:
    played = episode(
        {"reward": 1.0, "hook_reward": 0.25},
        {"reward": 1.0, "hook_reward": -0.5, "valid": False},
    )

    found = shaped_rewards(
        played, algorithm(invalid_action_penalty=0.1, invalid_action_penalty_on="return")
    )

    assert found == pytest.approx([0.25, -0.6])


def test_what_the_runs_own_function_did_not_return_ends_the_run() -> None:
    fine = episode({"reward": 1.0}).metadata
    refuse_hook_errors([fine])

    with pytest.raises(ConfigError, match="mine:shape gave 1 rewards"):
        refuse_hook_errors(
            [fine, episode({"reward": 1.0}, hook_error="mine:shape gave 1 rewards").metadata]
        )
