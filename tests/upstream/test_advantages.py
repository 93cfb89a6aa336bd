"""Our estimators and verl's, on the same numbers, where both mean the same.

That is where an episode is one row, and nothing is discounted inside it.

Shapes: E episodes, T tokens of a row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from longhaul_core.advantages import EpisodeCredit, loss_weights, whitened
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.drgrpo import drgrpo_credit
from longhaul_core.advantages.gae import gae_over_steps, gae_over_tokens
from longhaul_core.advantages.pass_at_k import pass_at_k_credit
from longhaul_core.advantages.reinforce import (
    reinforce_plus_plus_baseline_credit,
    reinforce_plus_plus_credit,
)
from longhaul_core.advantages.remax import remax_credit
from longhaul_core.advantages.rloo import rloo_credit
from variation import assert_several
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

GROUPS = ["a"] * 5 + ["b"] * 4 + ["c"] * 3
NUM_TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]
LONGEST = 8


class Batch(NamedTuple):
    """One outcome reward an episode, as both sides take it."""

    returns_E: FloatArray
    rewards_ET: torch.Tensor
    mask_ET: torch.Tensor


@pytest.fixture
def batch() -> Batch:
    """Groups of 5, 4 and 3 episodes of different lengths; all of the last did the same."""
    returns_E = np.random.default_rng(0).normal(size=len(GROUPS)).round(1)
    returns_E[9:] = 0.5
    mask_ET = torch.zeros(len(GROUPS), LONGEST, dtype=torch.float64)
    rewards_ET = torch.zeros_like(mask_ET)
    for row, (length, value) in enumerate(zip(NUM_TOKENS, returns_E, strict=True)):
        mask_ET[row, :length] = 1
        rewards_ET[row, length - 1] = value
    return Batch(returns_E, rewards_ET, mask_ET)


def core_algos() -> ModuleType:
    return import_module("verl.trainer.ppo.core_algos")


def per_group(
    batch: Batch, estimator: Callable[[list[FloatArray]], Sequence[EpisodeCredit]]
) -> list[EpisodeCredit]:
    names = np.array(GROUPS)
    return [
        credit
        for group in dict.fromkeys(GROUPS)
        for credit in estimator([np.array([value]) for value in batch.returns_E[names == group]])
    ]


def assert_same(ours: Sequence[EpisodeCredit], theirs_ET: torch.Tensor, batch: Batch) -> None:
    advantages_E = torch.tensor([credit.advantages[0] for credit in ours], dtype=torch.float64)
    assert_several(advantages_E.tolist(), at_least=3)
    torch.testing.assert_close(theirs_ET.double(), advantages_E[:, None] * batch.mask_ET)


def test_drgrpo_is_verls_grpo_that_divides_by_nothing(batch: Batch) -> None:
    theirs, _ = core_algos().compute_grpo_outcome_advantage(
        batch.rewards_ET, batch.mask_ET, np.array(GROUPS), norm_adv_by_std_in_grpo=False
    )

    assert_same(per_group(batch, drgrpo_credit), theirs, batch)


@pytest.mark.parametrize(
    "name", ["compute_rloo_outcome_advantage", "compute_rloo_vectorized_outcome_advantage"]
)
def test_rloo_is_verls(batch: Batch, name: str) -> None:
    theirs, _ = getattr(core_algos(), name)(batch.rewards_ET, batch.mask_ET, np.array(GROUPS))

    assert_same(per_group(batch, rloo_credit), theirs, batch)


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_pass_at_k_is_verls_where_k_is_the_group(batch: Batch, scale_by_std: bool) -> None:
    theirs, _ = core_algos().compute_grpo_passk_outcome_advantage(
        batch.rewards_ET,
        batch.mask_ET,
        np.array(GROUPS),
        config={"norm_adv_by_std_in_grpo": scale_by_std},
    )

    ours = per_group(batch, partial(pass_at_k_credit, scale_by_std=scale_by_std))
    assert_same(ours, theirs, batch)


def test_remax_is_verls(batch: Batch) -> None:
    greedy = {"a": 0.3, "b": -0.2, "c": 0.5}
    theirs, _ = core_algos().compute_remax_outcome_advantage(
        batch.rewards_ET,
        torch.tensor([greedy[group] for group in GROUPS], dtype=torch.float64),
        batch.mask_ET,
        config=None,
    )

    ours = [
        credit
        for group, value in zip(GROUPS, batch.returns_E, strict=True)
        for credit in remax_credit([np.array([value])], greedy_return=greedy[group])
    ]
    assert_same(ours, theirs, batch)


def test_reinforce_plus_plus_is_verls_where_tokens_are_not_discounted(batch: Batch) -> None:
    theirs, _ = core_algos().compute_reinforce_plus_plus_outcome_advantage(
        batch.rewards_ET, batch.mask_ET, config=SimpleNamespace(gamma=1.0)
    )

    ours = reinforce_plus_plus_credit(
        [np.array([value]) for value in batch.returns_E], [[tokens] for tokens in NUM_TOKENS]
    )
    assert_same(ours, theirs, batch)


def test_reinforce_plus_plus_baseline_is_verls(batch: Batch) -> None:
    theirs, _ = core_algos().compute_reinforce_plus_plus_baseline_outcome_advantage(
        batch.rewards_ET, batch.mask_ET, np.array(GROUPS)
    )

    ours = reinforce_plus_plus_baseline_credit(
        [np.array([value]) for value in batch.returns_E],
        [[tokens] for tokens in NUM_TOKENS],
        GROUPS,
    )
    assert_same(ours, theirs, batch)


def test_gae_over_tokens_is_verls_where_neither_discounts_nor_decays(batch: Batch) -> None:
    draw = np.random.default_rng(1)
    values_ET = draw.normal(size=batch.mask_ET.shape)
    whitened_ET, returns_ET = core_algos().compute_gae_advantage_return(
        batch.rewards_ET,
        torch.tensor(values_ET),
        batch.mask_ET,
        gamma=1.0,
        lam=1.0,
    )

    # Each episode is cut into two actions, with its reward at the end of the second.
    cuts = [length // 2 for length in NUM_TOKENS]
    ours = gae_over_tokens(
        [np.array([0.0, value]) for value in batch.returns_E],
        split(values_ET, cuts),
        [None] * len(GROUPS),
        discount=1.0,
        gae_lambda=1.0,
    )
    advantages = np.concatenate([np.concatenate(credit.advantages) for credit in ours])
    targets = np.concatenate([np.concatenate(credit.value_targets) for credit in ours])

    counted = batch.mask_ET.bool()
    np.testing.assert_allclose(targets, returns_ET[counted].numpy(), atol=1e-9)
    np.testing.assert_allclose(
        whitened(advantages, np.ones_like(advantages)), whitened_ET[counted].numpy(), atol=1e-6
    )


def split(values_ET: FloatArray, cuts: list[int]) -> list[list[FloatArray]]:
    return [
        [row[:cut], row[cut:length]]
        for row, cut, length in zip(values_ET, cuts, NUM_TOKENS, strict=True)
    ]


def test_gae_over_steps_is_verls_where_an_action_is_one_token() -> None:
    draw = np.random.default_rng(2)
    rewards_ES, values_ES = draw.normal(size=(2, 3, 5))
    # Between two actions lies an observation, which verl masks.
    rewards_ET, values_ET, mask_ET = (torch.zeros(3, 10, dtype=torch.float64) for _ in range(3))
    rewards_ET[:, ::2] = torch.tensor(rewards_ES)
    values_ET[:, ::2] = torch.tensor(values_ES)
    values_ET[:, 1::2] = 99.0
    mask_ET[:, ::2] = 1
    _, returns_ET = core_algos().compute_gae_advantage_return(
        rewards_ET, values_ET, mask_ET, gamma=0.9, lam=0.8
    )

    ours = gae_over_steps(
        list(rewards_ES), list(values_ES), [None] * 3, discount=0.9, gae_lambda=0.8
    )

    targets = np.array([credit.value_targets for credit in ours])
    np.testing.assert_allclose(targets, returns_ET[:, ::2].numpy(), atol=1e-12)


def test_a_fixed_token_is_verls_sum_over_a_constant(batch: Batch) -> None:
    losses_ET = torch.tensor(np.random.default_rng(3).normal(size=batch.mask_ET.shape))
    theirs = core_algos().agg_loss(
        losses_ET, batch.mask_ET, "seq-mean-token-sum-norm", loss_scale_factor=20
    )

    weights = loss_weights(
        [[tokens] for tokens in NUM_TOKENS], loss_unit="fixed_token", tokens_per_episode=20
    )
    weights_ET = torch.tensor(weights, dtype=torch.float64) * batch.mask_ET
    assert float((weights_ET * losses_ET).sum()) == pytest.approx(float(theirs), rel=1e-6)
