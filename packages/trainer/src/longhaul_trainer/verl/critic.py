"""The critic's loss as verl's worker calls it, and what it read, reported to the store.

It is a weighted sum over the values of an optimizer step, like the policy's (see `loss`), and
is reported in the same way (see `loss_inputs`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch.distributed import ProcessGroup
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from longhaul_core.store.records import CriticLossInput, CriticLossInputs
from longhaul_trainer.config.critic import CriticConfig
from longhaul_trainer.losses import value_loss
from longhaul_trainer.training.step_metadata import CallSpan, RowMetadata, read_metadata
from longhaul_trainer.verl.loss_inputs import MicroBatchReports


class ReportedValueLoss:
    """The critic's loss, and a report of every micro-batch that went through it."""

    def __init__(self, settings: CriticConfig, reports: MicroBatchReports) -> None:
        self._settings = settings
        self._reports = reports

    def __call__(
        self,
        model_output: dict[str, torch.Tensor],
        data: TensorDict,
        dp_group: ProcessGroup | None = None,
    ) -> tuple[torch.Tensor, dict[str, Metric]]:
        """Loss and metrics of one micro-batch; see `MicroBatchReports.put`.

        Raises:
            StoreError: A report of the update could not be written.
        """
        loss = critic_loss(model_output, data, dp_group, settings=self._settings)
        self._reports.put(data, CriticLossInputs, critic_loss_inputs(data), dp_group=dp_group)
        return loss


def critic_loss(
    model_output: dict[str, torch.Tensor],
    data: TensorDict,
    dp_group: object = None,
    *,
    settings: CriticConfig,
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Loss of one micro-batch and its metrics, each a sum over micro-batches and ranks."""
    values_BT = no_padding_2_padding(model_output["values"], data)
    padded = data.select("values", "returns", "value_weights").to_padded_tensor()
    weights_BT = padded["value_weights"]
    value = value_loss(
        values_BT,
        old_values_BT=padded["values"],
        targets_BT=padded["returns"],
        weights_BT=weights_BT,
        clip_range=settings.clip_range,
    )
    counted_BT = weights_BT > 0
    sums = {
        "value_loss": value.loss,
        "value_clip_fraction": value.clipped,
        "value_mean": (weights_BT * torch.where(counted_BT, values_BT, 0.0)).sum(),
        "value_target_mean": (weights_BT * padded["returns"]).sum(),
    }
    ranks: int = data["dp_size"]
    metrics = {
        name: Metric(value=number.detach() * ranks, aggregation=AggregationType.SUM)
        for name, number in sums.items()
    }
    return value.loss * ranks, metrics


def critic_loss_inputs(data: TensorDict) -> tuple[CriticLossInput, ...]:
    """What the critic's loss reads of each call of a micro-batch, padding rows left out.

    A call answers for its reply and for what comes after it in the row, up to the next reply.
    """
    padded = data.select("returns", "value_weights", "loss_mask").to_padded_tensor()
    # One transfer from the device.
    numbers = torch.stack(
        [padded[name].double() for name in ("returns", "value_weights", "loss_mask")]
    ).cpu()
    return tuple(
        _loss_input(row, span, row_index, of_row[:, span.start : end])
        for row_index, (row, of_row) in enumerate(
            zip(read_metadata(data.get("extra_fields").tolist()), numbers.unbind(1), strict=True)
        )
        if of_row[2].any()  # not in the rows that verl fills up with
        for span, end in zip(
            row.spans, [*(s.start for s in row.spans[1:]), of_row.shape[1]], strict=True
        )
    )


def _loss_input(
    row: RowMetadata, span: CallSpan, row_index: int, stretch: torch.Tensor
) -> CriticLossInput:
    targets, weights, _ = stretch
    places = weights.nonzero().flatten()
    counted: Mapping[str, float | None] = dict.fromkeys(
        ("target_low", "target_high", "weight_low", "weight_high")
    )
    if len(places):
        counted = {
            "target_low": targets[places].min().item(),
            "target_high": targets[places].max().item(),
            "weight_low": weights[places].min().item(),
            "weight_high": weights[places].max().item(),
        }
    return CriticLossInput(
        phase="train",  # a critic values nothing else
        training_step=row.training_step,
        group_index=row.group_index,
        sample_index=row.sample_index,
        retry=row.retry,
        step_index=span.step,
        call_index=span.call,
        row_index=row_index,
        num_tokens=len(places),
        first_token=int(places[0]) if len(places) else None,
        **counted,
    )
