"""Our formulas and verl's, on the same numbers, where both mean the same."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from longhaul_core.advantages import loss_weights
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.advantages.weights import LossUnit
from longhaul_trainer.losses import (
    ActionTokens,
    PolicyLoss,
    cispo_loss,
    gspo_loss,
    kl_estimate,
    ppo_loss,
    truncated_importance_weights,
)
from longhaul_trainer.losses.importance import ImportanceLevel
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


@pytest.mark.parametrize("scale_by_std", [True, False])
def test_grpo_is_verls_where_an_episode_is_one_row(scale_by_std: bool) -> None:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    draw = np.random.default_rng(0)
    returns = draw.normal(size=(3, 5)).round(1)  # groups, episodes
    returns[2] = 0.7  # a group without signal
    rewards = torch.zeros(15, 4)
    rewards[:, -1] = torch.tensor(returns.reshape(-1))
    theirs, _ = compute_grpo_outcome_advantage(
        rewards,
        torch.ones(15, 4),
        np.repeat(["a", "b", "c"], 5),
        norm_adv_by_std_in_grpo=scale_by_std,
    )

    ours = [
        credit.episode_advantage
        for group in returns
        for credit in grpo_credit([np.array([value]) for value in group], scale_by_std=scale_by_std)
    ]

    # Equal returns: ours is exactly 0; verl divides the rounding of a mean by 1e-6.
    np.testing.assert_allclose(ours[:10], theirs[:10, 0].numpy(), atol=1e-5)
    assert ours[10:] == [0.0] * 5


class Batch(NamedTuple):
    """Tokens of six rows of one to nine tokens, right-padded, and verl's mask of them."""

    policy: torch.Tensor
    old: torch.Tensor
    behavior: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


@pytest.fixture
def batch() -> Batch:
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([9, 1, 4, 6, 2, 7])
    old = -torch.rand(6, 9, generator=draw) * 3
    return Batch(
        policy=old + torch.randn(6, 9, generator=draw),
        old=old,
        behavior=old + 0.5 * torch.randn(6, 9, generator=draw),
        advantages=torch.randn(6, 1, generator=draw).expand(6, 9),
        mask=(torch.arange(9) < lengths[:, None]).float(),
    )


def actor_config(*, clip_low: float, clip_high: float) -> Any:  # noqa: ANN401
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio_low=clip_low,
        clip_ratio_high=clip_high,
        clip_ratio_c=3.0,
    )


def verls(
    name: str, batch: Batch, *, mean: str, **arguments: object
) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Loss, gradient and metrics of verl's policy loss `name`."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    policy = batch.policy.clone().requires_grad_()
    # verl's registry annotates the function with more arguments than it has to be given.
    function: Any = get_policy_loss_fn(name)
    loss, metrics = function(
        batch.old, policy, batch.advantages, batch.mask, loss_agg_mode=mean, **arguments
    )
    (gradient,) = torch.autograd.grad(loss, policy)
    return float(loss), gradient, metrics


def ours(
    function: Callable[..., PolicyLoss], batch: Batch, *, unit: LossUnit, **clipping: float
) -> tuple[float, torch.Tensor, PolicyLoss]:
    """The same of one of ours, each row an episode of one step."""
    policy = batch.policy.clone().requires_grad_()
    counts = [[int(tokens)] for tokens in batch.mask.sum(dim=-1)]
    weights = torch.tensor(loss_weights(counts, loss_unit=unit))
    found = function(
        ActionTokens(
            policy_logprobs_BT=policy,
            old_logprobs_BT=batch.old,
            advantages_BT=batch.advantages,
            loss_weights_BT=batch.mask * weights,
            actions_BT=torch.zeros_like(batch.mask, dtype=torch.int64),
        ),
        **clipping,
    )
    (gradient,) = torch.autograd.grad(found.loss, policy)
    return float(found.loss.detach()), gradient, found


@pytest.mark.parametrize("clip_high", [0.2, 0.28])
def test_the_clipped_loss_is_verls_over_the_mean_of_the_tokens(
    batch: Batch, clip_high: float
) -> None:
    config = actor_config(clip_low=0.2, clip_high=clip_high)

    theirs = verls("vanilla", batch, mean="token-mean", config=config)
    found = ours(ppo_loss, batch, unit="token", clip_low=0.2, clip_high=clip_high, dual_clip=3.0)

    assert found[0] == pytest.approx(theirs[0], rel=1e-5)
    torch.testing.assert_close(found[1], theirs[1])
    assert float(found[2].divergence) == pytest.approx(theirs[2]["actor/ppo_kl"], rel=1e-4)


@pytest.mark.parametrize(
    ("mean", "unit"), [("seq-mean-token-mean", "step"), ("token-mean", "token")]
)
def test_gspo_is_verls_where_a_row_is_a_step(batch: Batch, mean: str, unit: LossUnit) -> None:
    config = actor_config(clip_low=0.3, clip_high=0.4)

    theirs = verls("gspo", batch, mean=mean, config=config)
    found = ours(gspo_loss, batch, unit=unit, clip_low=0.3, clip_high=0.4)

    assert found[0] == pytest.approx(theirs[0], rel=1e-5)
    torch.testing.assert_close(found[1], theirs[1])
    assert 0 < float(found[2].clipped) < 1
    if unit == "token":  # verl's metrics are means over tokens whatever the loss is
        assert float(found[2].clipped) == pytest.approx(theirs[2]["actor/pg_clipfrac"])
        assert float(found[2].divergence) == pytest.approx(theirs[2]["actor/ppo_kl"], rel=1e-4)


def test_a_ratio_of_gspo_is_held_where_verl_holds_it(batch: Batch) -> None:
    config = actor_config(clip_low=0.3, clip_high=0.4)
    likelier = torch.tensor([9.9, 10.1, 25.0, 0.0, -25.0, 10.1])[:, None]
    far = batch._replace(policy=batch.old + likelier, advantages=-batch.advantages.abs())

    theirs = verls("gspo", far, mean="token-mean", config=config)
    found = ours(gspo_loss, far, unit="token", clip_low=0.3, clip_high=0.4)

    assert found[0] == pytest.approx(theirs[0], rel=1e-5)
    torch.testing.assert_close(found[1], theirs[1])
    assert [bool(row.any()) for row in found[1]] == [True, False, False, True, False, False]


def test_cispo_is_verls_over_the_mean_of_the_tokens(batch: Batch) -> None:
    config = actor_config(clip_low=0.3, clip_high=0.4)

    theirs = verls("cispo", batch, mean="token-mean", config=config)
    found = ours(cispo_loss, batch, unit="token", clip_low=0.3, clip_high=0.4)

    assert found[0] == pytest.approx(theirs[0], rel=1e-5)
    torch.testing.assert_close(found[1], theirs[1])
    assert 0 < float(found[2].clipped) < 1
    assert float(found[2].clipped) == pytest.approx(theirs[2]["actor/pg_clipfrac"])
    assert float(found[2].divergence) == pytest.approx(theirs[2]["actor/ppo_kl"], rel=1e-4)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(("kind", "name"), [("ppo", "vanilla"), ("gspo", "gspo")])
def test_importance_weights_are_verls_and_do_in_the_advantage_what_they_do_there(
    batch: Batch, level: ImportanceLevel, kind: str, name: str
) -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    config = actor_config(clip_low=0.3, clip_high=0.4)
    weights, metrics = compute_rollout_correction_weights(
        batch.old - batch.behavior, batch.mask, rollout_is=level, rollout_is_threshold=2.0
    )
    theirs = verls(name, batch, mean="token-mean", config=config, rollout_is_weights=weights)

    importance = truncated_importance_weights(
        old_logprobs_BT=batch.old,
        behavior_logprobs_BT=batch.behavior,
        counted_BT=batch.mask > 0,
        actions_BT=torch.zeros_like(batch.mask, dtype=torch.int64),
        level=level,
        cap=2.0,
    )
    weighted = batch._replace(advantages=batch.advantages * importance.weights_BT)
    if kind == "ppo":
        found = ours(ppo_loss, weighted, unit="token", clip_low=0.3, clip_high=0.4, dual_clip=3.0)
    else:
        found = ours(gspo_loss, weighted, unit="token", clip_low=0.3, clip_high=0.4)

    torch.testing.assert_close(importance.weights_BT * batch.mask, weights)
    assert found[0] == pytest.approx(theirs[0], rel=1e-5)
    torch.testing.assert_close(found[1], theirs[1])
    mean = (importance.weights_BT * batch.mask).sum() / batch.mask.sum()
    assert float(mean) == pytest.approx(metrics["rollout_is_mean"], rel=1e-5)
    assert bool(importance.truncated_BT.any())


@pytest.mark.parametrize(("kind", "name"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
def test_the_estimators_are_verls_under_the_names_that_settings_give(kind: str, name: str) -> None:
    from verl.trainer.ppo import core_algos

    from longhaul_trainer.verl.settings import KL_KINDS

    assert KL_KINDS[kind] == name
    draw = torch.Generator().manual_seed(0)
    policy = -torch.rand(3, 7, generator=draw) * 3
    reference = policy + 0.5 * torch.randn(3, 7, generator=draw)
    assert kind in ("k1", "k2", "k3")
    kl_penalty: Any = core_algos.kl_penalty  # annotated for CPU tensors of one legacy type

    torch.testing.assert_close(
        kl_estimate(policy, reference, kind=kind), kl_penalty(policy, reference, name)
    )
