"""Our losses as verl's worker calls them.

verl hands a loss the model's output and the rows of one micro-batch, and adds up the
losses of the micro-batches; its data-parallel ranks average their gradients. A loss that
is a weighted sum over the tokens of the whole optimizer step therefore only has to be
multiplied by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.losses import (
    ActionTokens,
    kl_estimate,
    nll_loss,
    truncated_importance_weights,
)
from longhaul_trainer.training.losses import compute_loss, needs_behavior
from longhaul_trainer.training.spans import call_numbers
from longhaul_trainer.training.step_metadata import read_metadata

MEANS = (
    "policy_divergence",
    "ratio_mean",
    "importance_weight_mean",
    "importance_truncated_fraction",
    "reference_kl",
    "loss_entropy",
)
"""Metrics that `policy_loss` sums by weight and `weighted_means` makes means."""


def policy_loss(
    model_output: dict[str, torch.Tensor],
    data: TensorDict,
    dp_group: object = None,
    *,
    settings: LossConfig,
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Loss of one micro-batch and its metrics, each a sum over micro-batches and ranks.

    Rows of demonstrations have the negative log-likelihood in place of the run's loss, and are in
    no metric.
    """
    logprobs_BT = no_padding_2_padding(model_output["log_probs"], data)
    padded = data.select(*_fields(settings)).to_padded_tensor()
    weights_BT, advantages_BT = padded["loss_weights"], padded["advantages"]
    rows = read_metadata(data.get("extra_fields").tolist())
    actions_BT = call_numbers([row.spans for row in rows], num_tokens=weights_BT.shape[1]).to(
        weights_BT.device
    )
    imitated = [row.demonstration for row in rows]
    imitated_B1 = torch.tensor(imitated, device=weights_BT.device).unsqueeze(1)
    imitation_weights_BT = weights_BT.where(imitated_B1, 0.0)
    weights_BT = weights_BT.where(~imitated_B1, 0.0)
    sums = {"trained_weight": weights_BT.sum()}
    if settings.importance_sampling != "none":
        importance = truncated_importance_weights(
            old_logprobs_BT=padded["old_log_probs"],
            behavior_logprobs_BT=padded["rollout_log_probs"],
            counted_BT=weights_BT > 0,
            actions_BT=actions_BT,
            level=settings.importance_sampling,
            cap=settings.importance_cap,
        )
        advantages_BT = advantages_BT * importance.weights_BT
        sums["importance_weight_mean"] = (weights_BT * importance.weights_BT).sum()
        sums["importance_truncated_fraction"] = (weights_BT * importance.truncated_BT).sum()
    behavior = needs_behavior(settings.kind)
    policy = compute_loss(
        ActionTokens(
            policy_logprobs_BT=logprobs_BT,
            old_logprobs_BT=padded["old_log_probs"],
            advantages_BT=advantages_BT,
            loss_weights_BT=weights_BT,
            actions_BT=actions_BT,
            behavior_logprobs_BT=padded["rollout_log_probs"] if behavior else None,
        ),
        settings,
    )
    loss = policy.loss
    sums |= {
        "policy_loss": policy.loss,
        "clip_fraction": policy.clipped,
        "policy_divergence": policy.divergence,
        "ratio_mean": policy.ratio,
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
    if any(imitated):
        loss = (
            loss
            + nll_loss(
                ActionTokens(
                    policy_logprobs_BT=logprobs_BT,
                    old_logprobs_BT=padded["old_log_probs"],
                    advantages_BT=padded["advantages"],
                    loss_weights_BT=imitation_weights_BT,
                    actions_BT=actions_BT,
                )
            ).loss
        )
    ranks: int = data["dp_size"]
    metrics = {
        name: Metric(value=value.detach() * ranks, aggregation=AggregationType.SUM)
        for name, value in sums.items()
    }
    return loss * ranks, metrics


def weighted_means(metrics: Mapping[str, float], *, whole_weight: float) -> dict[str, float]:
    """The metrics of one optimizer step, with `MEANS` over the tokens that were in it.

    Rows whose advantage is zero may have been left out of the update, and then the weights
    of the others do not add up to the whole. `clip_fraction` is the share of the whole:
    clipping never changes a gradient of zero.

    Args:
        metrics: What the worker gave back, each name with verl's prefix `actor/`.
        whole_weight: Of all tokens of the optimizer step, those in no row too; 1, but where
            a token's weight is fixed.
    """
    weight = metrics["actor/trained_weight"]
    found = {
        name: value / weight if name.endswith(MEANS) else value for name, value in metrics.items()
    }
    return found | {"actor/clip_fraction": metrics["actor/clip_fraction"] / whole_weight}


def _fields(settings: LossConfig) -> list[str]:
    """What the loss reads of a row, by verl's names."""
    fields = ["old_log_probs", "advantages", "loss_weights"]
    if settings.importance_sampling != "none" or needs_behavior(settings.kind):
        fields.append("rollout_log_probs")
    if settings.kl_coefficient > 0:
        fields.append("ref_log_prob")
    return fields
