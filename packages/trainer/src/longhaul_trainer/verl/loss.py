"""Our losses as verl's worker calls them.

verl hands a loss the model's output and the rows of one micro-batch, and adds up the
losses of the micro-batches; its data-parallel ranks average their gradients. A loss that
is a weighted sum over the tokens of the whole optimizer step therefore only has to be
multiplied by the number of ranks.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.losses import clipped_policy_loss, kl_estimate

FIELDS = ("old_log_probs", "advantages", "loss_weights")


def policy_loss(
    model_output: dict[str, torch.Tensor],
    data: TensorDict,
    dp_group: object = None,
    *,
    settings: LossConfig,
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Loss of one micro-batch and its metrics, each a sum over micro-batches and ranks."""
    logprobs_BT = no_padding_2_padding(model_output["log_probs"], data)
    fields = [*FIELDS, *(["ref_log_prob"] if settings.kl_coefficient > 0 else [])]
    padded = data.select(*fields).to_padded_tensor()
    weights_BT = padded["loss_weights"]
    policy = clipped_policy_loss(
        policy_logprobs_BT=logprobs_BT,
        old_logprobs_BT=padded["old_log_probs"],
        advantages_BT=padded["advantages"],
        loss_weights_BT=weights_BT,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip,
    )
    loss = policy.loss
    sums = {
        "policy_loss": policy.loss,
        "clip_fraction": policy.clipped_weight,
        "policy_divergence": policy.divergence,
    }
    if settings.kl_coefficient > 0:
        kl = kl_estimate(logprobs_BT, padded["ref_log_prob"], kind=settings.kl_kind)
        kl = (weights_BT * torch.where(weights_BT > 0, kl, 0.0)).sum()
        loss = loss + settings.kl_coefficient * kl
        sums["reference_kl"] = kl
    if settings.entropy_coefficient > 0:
        entropy = (weights_BT * no_padding_2_padding(model_output["entropy"], data)).sum()
        loss = loss - settings.entropy_coefficient * entropy
        sums["loss_entropy"] = entropy
    ranks: int = data["dp_size"]
    metrics = {
        name: Metric(value=value.detach() * ranks, aggregation=AggregationType.SUM)
        for name, value in sums.items()
    }
    return loss * ranks, metrics
