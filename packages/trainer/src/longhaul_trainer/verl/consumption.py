"""What the loss read of each step, told to the store by the learner's worker.

The trainer stores the advantages and weights that it means the update to have. Rows then
go through TransferQueue, verl's dispatch to the ranks and its cut into micro-batches; what
comes out there is read here, from the tensors of the loss itself. A row says which step it
is by the note it was given when its episode was played, not by the order it came in.

The loss function is the one place that verl calls once for each micro-batch of an update,
under activation checkpointing too, which runs the model again and not the loss. Reports are
waited for: when the update is done they are in the store, and an error there ends the run.

B rows, T tokens of the longest reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from tensordict import TensorDict
from verl.utils.metric import Metric

from longhaul_core.store.records import ConsumedStep, ConsumedSteps, Record
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.verl.loss import policy_loss
from longhaul_trainer.verl.notes import read_notes

TRAINING_STEP = "update_training_step"
OPTIMIZER_STEP = "update_optimizer_step"
"""Keys of the update's own numbers among what the trainer sends with its rows."""


class RecordWriter(Protocol):
    """Where reports go: the run's `Recorder`, or a `StoreWriter`."""

    def write(self, records: Sequence[Record]) -> None:
        """Put records into the store.

        Raises:
            StoreError: They are not in it.
        """
        ...


class ReportedLoss:
    """`policy_loss`, and a report of every micro-batch that went through it."""

    def __init__(
        self,
        settings: LossConfig,
        *,
        run_id: str,
        attempt: int,
        find_writer: Callable[[], RecordWriter],
    ) -> None:
        """Nothing happens before the first micro-batch, so this can be sent to the workers.

        Args:
            settings: Of the loss.
            run_id: The run.
            attempt: Its attempt.
            find_writer: Gives the way to the store, in the process of the worker.
        """
        self._settings = settings
        self._run_id = run_id
        self._attempt = attempt
        self._find_writer = find_writer
        self._writer: RecordWriter | None = None
        self._update: tuple[int, int] | None = None
        self._num_micro_batches = 0

    def __call__(
        self, model_output: dict[str, torch.Tensor], data: TensorDict, dp_group: object = None
    ) -> tuple[torch.Tensor, dict[str, Metric]]:
        """Loss and metrics of one micro-batch; what was read is in the store when it returns.

        Raises:
            StoreError: The report could not be written.
        """
        loss = policy_loss(model_output, data, dp_group, settings=self._settings)
        self._report(data)
        return loss

    def _report(self, data: TensorDict) -> None:
        training_step, optimizer_step = int(data[TRAINING_STEP]), int(data[OPTIMIZER_STEP])
        if self._update != (training_step, optimizer_step):
            self._update = training_step, optimizer_step
            self._num_micro_batches = 0
        if self._writer is None:
            self._writer = self._find_writer()
        self._writer.write(
            [
                ConsumedSteps(
                    run_id=self._run_id,
                    attempt=self._attempt,
                    training_step=training_step,
                    optimizer_step_index=optimizer_step,
                    rank=torch.distributed.get_rank(),
                    micro_batch=self._num_micro_batches,
                    rows=consumed_steps(data),
                )
            ]
        )
        self._num_micro_batches += 1


def consumed_steps(data: TensorDict) -> tuple[ConsumedStep, ...]:
    """What the loss reads of each row of a micro-batch, padding rows left out.

    One transfer from the device, of B times 7 numbers.
    """
    padded = data.select(
        "advantages", "loss_weights", "old_log_probs", "loss_mask"
    ).to_padded_tensor()
    advantages_BT, weights_BT = padded["advantages"], padded["loss_weights"]
    in_loss_BT = weights_BT > 0
    numbers = torch.stack(
        [
            padded["loss_mask"].sum(-1).double(),  # 0 in the rows that verl fills up with
            in_loss_BT.sum(-1).double(),
            *_extremes(advantages_BT, in_loss_BT),
            *_extremes(weights_BT, in_loss_BT),
            torch.where(in_loss_BT, padded["old_log_probs"].double(), 0.0).sum(-1),
        ]
    )
    rows: list[ConsumedStep] = []
    notes = read_notes(data.get("extra_fields").tolist())
    for index, (note, row) in enumerate(zip(notes, numbers.T.tolist(), strict=True)):
        num_own_tokens, num_tokens, *extremes, old_logprob_sum = row
        if not num_own_tokens:
            continue
        low, high, lightest, heaviest = extremes if num_tokens else [None] * 4
        rows.append(
            ConsumedStep(
                group_index=note.group_index,
                position=note.position,
                retry=note.retry,
                step_index=note.step,
                row_index=index,
                num_tokens=int(num_tokens),
                advantage_low=low,
                advantage_high=high,
                weight_low=lightest,
                weight_high=heaviest,
                old_logprob_sum=old_logprob_sum,
            )
        )
    return tuple(rows)


def _extremes(
    values_BT: torch.Tensor, counted_BT: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and greatest counted value of each row, float64; infinite where none is counted."""
    values_BT = values_BT.double()
    return (
        torch.where(counted_BT, values_BT, torch.inf).amin(-1),
        torch.where(counted_BT, values_BT, -torch.inf).amax(-1),
    )
