"""What the loss read of each step, told to the store by the learner's worker.

The trainer stores the advantages and weights that it means the update to have. Rows then
go through TransferQueue, verl's dispatch to the ranks and its cut into micro-batches; what
comes out there is read here, from the tensors of the loss itself. A row says which steps are in
it by the notes it was given when its episode was played, not by the order it came in.

The loss function is the one place that verl calls once for each micro-batch of an update,
under activation checkpointing too, which runs the model again and not the loss. Reports are
waited for: when the update is done they are in the store, and an error there ends the run.

B rows, T tokens of the longest response, A actions of the row with the most steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from tensordict import TensorDict
from torch.distributed import ProcessGroup
from verl.utils.metric import Metric

from longhaul_core.store.records import LossInput, LossInputs, Record
from longhaul_trainer.config.learning import LossConfig
from longhaul_trainer.training.spans import action_numbers
from longhaul_trainer.training.step_metadata import StepMetadata, read_notes
from longhaul_trainer.verl.loss import policy_loss

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


class MicroBatchReports:
    """The way to the store from a loss; counts the micro-batches of each update."""

    def __init__(
        self, *, run_id: str, attempt: int, find_writer: Callable[[], RecordWriter]
    ) -> None:
        """Nothing happens before the first micro-batch, so this can be sent to the workers.

        Args:
            run_id: The run.
            attempt: Its attempt.
            find_writer: Gives the way to the store, in the process of the worker.
        """
        self._run_id = run_id
        self._attempt = attempt
        self._find_writer = find_writer
        self._writer: RecordWriter | None = None
        self._update: tuple[int, int] | None = None
        self._num_micro_batches = 0

    def write(
        self,
        data: TensorDict,
        record: Callable[..., Record],
        rows: tuple[object, ...],
        *,
        dp_group: ProcessGroup | None,
    ) -> None:
        """Tell the store what was read of a micro-batch, and wait until it is there.

        Ranks that compute the same rows together (tensor and sequence parallelism) have the same
        place among the data-parallel ranks, and so make the same report: the store keeps one.

        Args:
            data: The micro-batch.
            record: `LossInputs` or `CriticLossInputs`.
            rows: What it holds.
            dp_group: The data-parallel ranks that this one is among; None: all there are.

        Raises:
            StoreError: The report could not be written.
        """
        update = int(data[TRAINING_STEP]), int(data[OPTIMIZER_STEP])
        if self._update != update:
            self._update = update
            self._num_micro_batches = 0
        if self._writer is None:
            self._writer = self._find_writer()
        self._writer.write(
            [
                record(
                    run_id=self._run_id,
                    attempt=self._attempt,
                    training_step=update[0],
                    optimizer_step_index=update[1],
                    rank=torch.distributed.get_rank(dp_group),
                    micro_batch=self._num_micro_batches,
                    rows=rows,
                )
            ]
        )
        self._num_micro_batches += 1


class ReportedLoss:
    """`policy_loss`, and a report of every micro-batch that went through it."""

    def __init__(self, settings: LossConfig, reports: MicroBatchReports) -> None:
        self._settings = settings
        self._reports = reports

    def __call__(
        self,
        model_output: dict[str, torch.Tensor],
        data: TensorDict,
        dp_group: ProcessGroup | None = None,
    ) -> tuple[torch.Tensor, dict[str, Metric]]:
        """Loss and metrics of one micro-batch; what was read is in the store when it returns.

        Raises:
            StoreError: The report could not be written.
        """
        loss = policy_loss(model_output, data, dp_group, settings=self._settings)
        self._reports.write(data, LossInputs, loss_inputs(data), dp_group=dp_group)
        return loss


def loss_inputs(data: TensorDict) -> tuple[LossInput, ...]:
    """What the loss reads of each step of a micro-batch, padding rows left out.

    A step answers for its action and for what comes after it in the row, up to the next action:
    a token that weighs something where nothing was sampled is told of the step before it.

    One transfer from the device, of B times A times 7 numbers.
    """
    padded = data.select(
        "advantages", "loss_weights", "old_log_probs", "loss_mask"
    ).to_padded_tensor()
    advantages_BT, weights_BT = padded["advantages"], padded["loss_weights"]
    in_loss_BT = weights_BT > 0
    rows = read_notes(data.get("extra_fields").tolist())
    actions = _Actions(action_numbers(rows, num_tokens=in_loss_BT.shape[1]).to(in_loss_BT.device))
    own_tokens_B1 = padded["loss_mask"].sum(-1, keepdim=True)
    numbers_BA7 = torch.stack(
        [
            # 0 in the rows that verl fills up with
            own_tokens_B1.double().expand(-1, actions.most),
            actions.sums(in_loss_BT),
            *actions.extremes(advantages_BT, in_loss_BT),
            *actions.extremes(weights_BT, in_loss_BT),
            actions.sums(torch.where(in_loss_BT, padded["old_log_probs"].double(), 0.0)),
        ],
        dim=-1,
    )
    return tuple(
        _loss_input(note, row_index, numbers)
        for row_index, (notes, numbers_A7) in enumerate(
            zip(rows, numbers_BA7.tolist(), strict=True)
        )
        for note, numbers in zip(notes, numbers_A7, strict=False)
        if numbers[0]
    )


def _loss_input(note: StepMetadata, row_index: int, numbers: Sequence[float]) -> LossInput:
    _, num_tokens, *extremes, old_logprob_sum = numbers
    low, high, lightest, heaviest = extremes if num_tokens else [None] * 4
    return LossInput(
        training_step=note.training_step,
        group_index=note.group_index,
        sample_index=note.sample_index,
        retry=note.retry,
        step_index=note.step,
        row_index=row_index,
        num_tokens=int(num_tokens),
        advantage_low=low,
        advantage_high=high,
        weight_low=lightest,
        weight_high=heaviest,
        old_logprob_sum=old_logprob_sum,
    )


class _Actions:
    """Takes tokens together by the action that they belong to; float64, shape `[B, A]`."""

    def __init__(self, actions_BT: torch.Tensor) -> None:
        self._actions_BT = actions_BT
        self.most = int(actions_BT.max()) + 1

    def sums(self, values_BT: torch.Tensor) -> torch.Tensor:
        return self._reduced(values_BT, "sum", start=0.0)

    def extremes(
        self, values_BT: torch.Tensor, counted_BT: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Least and greatest counted value; infinite where none is counted."""
        values_BT = values_BT.double()
        return (
            self._reduced(torch.where(counted_BT, values_BT, torch.inf), "amin", start=torch.inf),
            self._reduced(torch.where(counted_BT, values_BT, -torch.inf), "amax", start=-torch.inf),
        )

    def _reduced(self, values_BT: torch.Tensor, how: str, *, start: float) -> torch.Tensor:
        shape = (len(values_BT), self.most)
        first_BA = torch.full(shape, start, dtype=torch.float64, device=values_BT.device)
        return first_BA.scatter_reduce(1, self._actions_BT, values_BT.double(), how)
