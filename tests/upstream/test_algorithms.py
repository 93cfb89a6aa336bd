"""Our formulas and verl's, on the same numbers, where both mean the same."""

from typing import Any

import numpy as np
import pytest
import torch

from longhaul_core.advantages import grpo_credit, loss_weights
from longhaul_trainer.losses import clipped_policy_loss, kl_estimate

pytestmark = [
    pytest.mark.usefixtures("cpu_run"),
    pytest.mark.slow,  # importing verl takes about ten seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of verl's and Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of verl's and Ray's own imports
    pytest.mark.filterwarnings("ignore::UserWarning"),  # hydra and transformers, on import
]


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


@pytest.mark.parametrize("clip_high", [0.2, 0.28])
def test_the_clipped_loss_is_verls_over_the_mean_of_the_tokens(clip_high: float) -> None:
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
    from verl.workers.config import FSDPActorConfig

    draw = torch.Generator().manual_seed(0)
    mask = (torch.rand(6, 9, generator=draw) < 0.7).float()
    old = -torch.rand(6, 9, generator=draw) * 3
    policy = old + torch.randn(6, 9, generator=draw)
    advantages = torch.randn(6, 9, generator=draw)
    config = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio_low=0.2,
        clip_ratio_high=clip_high,
        clip_ratio_c=3.0,
    )
    gradients: list[torch.Tensor] = []
    losses: list[float] = []

    theirs = policy.clone().requires_grad_()
    # verl's registry annotates the function with more arguments than it has to be given.
    vanilla: Any = compute_policy_loss_vanilla
    loss, metrics = vanilla(
        old, theirs, advantages, mask, loss_agg_mode="token-mean", config=config
    )
    loss.backward()
    ours = policy.clone().requires_grad_()
    (weights,) = loss_weights([[int(mask.sum())]], loss_unit="token")
    found = clipped_policy_loss(
        policy_logprobs_BT=ours,
        old_logprobs_BT=old,
        advantages_BT=advantages,
        loss_weights_BT=mask * weights[0],
        clip_low=0.2,
        clip_high=clip_high,
        dual_clip=3.0,
    )
    found.loss.backward()
    for tensor, value in ((theirs, loss), (ours, found.loss)):
        assert tensor.grad is not None
        gradients.append(tensor.grad)
        losses.append(float(value))

    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    torch.testing.assert_close(gradients[1], gradients[0])
    assert float(found.divergence) == pytest.approx(metrics["actor/ppo_kl"], rel=1e-4)


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
