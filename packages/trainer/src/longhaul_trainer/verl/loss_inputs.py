"""What the loss read of each call, reported to the store by the learner's worker.

The trainer stores the advantages and weights that it means the update to have. Rows then
go through TransferQueue, verl's dispatch to the ranks and its cut into micro-batches; what
comes out there is read here, from the tensors of the loss itself. A row says which calls are in
it by the spans it was given when its episode was played, not by the order it came in.

The loss function is the one place that verl calls once for each micro-batch of an update,
under activation checkpointing too, which runs the model again and not the loss. A report is handed
over and written behind the update; the last micro-batch waits for all of them. So they are in the
store before the optimizer moves, and an error there ends the run.

B rows, T tokens of the longest response, C calls of the row with the most of them.
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
from longhaul_trainer.training.spans import call_numbers
from longhaul_trainer.training.step_metadata import CallSpan, RowMetadata, read_metadata
from longhaul_trainer.verl.loss import policy_loss

TRAINING_STEP = "update_training_step"
OPTIMIZER_STEP = "update_optimizer_step"
"""Keys of the update's own numbers among what the trainer sends with its rows."""


class RecordWriter(Protocol):
    """Where reports go: the run's `RunRecorder`."""

    def put(self, records: Sequence[Record]) -> None:
        """Hand over records, in order, and go on.

        Raises:
            StoreError: Records that were handed over before could not be written.
        """
        ...

    def settle(self) -> None:
        """Wait until everything that was handed over is in the store.

        Raises:
            StoreError: Some of it is not.
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
        self._num_rows = 0

    def put(
        self,
        data: TensorDict,
        record: Callable[..., Record],
        rows: tuple[object, ...],
        *,
        dp_group: ProcessGroup | None,
    ) -> None:
        """Hand over what was read of a micro-batch; the last of an update waits for all reports.

        It is the last that has the rest of this rank's rows: verl sends every rank equally many.
        Ranks that compute the same rows together (tensor and sequence parallelism) have the same
        place among the data-parallel ranks, and so make the same report: the store keeps one.

        Args:
            data: The micro-batch.
            record: `LossInputs` or `CriticLossInputs`.
            rows: What it holds.
            dp_group: The data-parallel ranks that this one is among; None: all there are.

        Raises:
            StoreError: This report, or one before it, could not be written.
        """
        update = int(data[TRAINING_STEP]), int(data[OPTIMIZER_STEP])
        if self._update != update:
            self._update = update
            self._num_micro_batches = 0
            self._num_rows = 0
        if self._writer is None:
            self._writer = self._find_writer()
        self._writer.put(
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
        self._num_rows += len(data)
        if self._num_rows >= data["global_batch_size"] // data["dp_size"]:
            self._writer.settle()


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
        """Loss and metrics of one micro-batch; see `MicroBatchReports.put`.

        Raises:
            StoreError: A report of the update could not be written.
        """
        loss = policy_loss(model_output, data, dp_group, settings=self._settings)
        self._reports.put(data, LossInputs, loss_inputs(data), dp_group=dp_group)
        return loss


def loss_inputs(data: TensorDict) -> tuple[LossInput, ...]:
    """What the loss reads of each call of a micro-batch, padding rows left out.

    A call answers for its reply and for what comes after it in the row, up to the next reply:
    a token that weighs something where nothing was sampled is counted with the call before it.

    One transfer from the device, of B times C times 7 numbers.
    """
    padded = data.select(
        "advantages", "loss_weights", "old_log_probs", "loss_mask"
    ).to_padded_tensor()
    advantages_BT, weights_BT = padded["advantages"], padded["loss_weights"]
    in_loss_BT = weights_BT > 0
    rows = read_metadata(data.get("extra_fields").tolist())
    numbers_BT = call_numbers([row.spans for row in rows], num_tokens=in_loss_BT.shape[1])
    calls = _Calls(numbers_BT, device=in_loss_BT.device)
    own_tokens_B1 = padded["loss_mask"].sum(-1, keepdim=True)
    numbers_BC7 = torch.stack(
        [
            # 0 in the rows that verl fills up with
            own_tokens_B1.double().expand(-1, calls.most),
            calls.sums(in_loss_BT),
            *calls.extremes(advantages_BT, in_loss_BT),
            *calls.extremes(weights_BT, in_loss_BT),
            calls.sums(torch.where(in_loss_BT, padded["old_log_probs"].double(), 0.0)),
        ],
        dim=-1,
    )
    return tuple(
        _loss_input(row, span, row_index, numbers)
        for row_index, (row, numbers_C7) in enumerate(zip(rows, numbers_BC7.tolist(), strict=True))
        for span, numbers in zip(row.spans, numbers_C7, strict=False)
        if numbers[0]
    )


def _loss_input(
    row: RowMetadata, span: CallSpan, row_index: int, numbers: Sequence[float]
) -> LossInput:
    _, num_tokens, *extremes, old_logprob_sum = numbers
    low, high, lightest, heaviest = extremes if num_tokens else [None] * 4
    return LossInput(
        training_step=row.training_step,
        group_index=row.group_index,
        sample_index=row.sample_index,
        retry=row.retry,
        step_index=span.step,
        call_index=span.call,
        row_index=row_index,
        phase="demonstration" if row.demonstration else "train",
        num_tokens=int(num_tokens),
        advantage_low=low,
        advantage_high=high,
        weight_low=lightest,
        weight_high=heaviest,
        old_logprob_sum=old_logprob_sum,
    )


class _Calls:
    """Takes tokens together by the call that they belong to; float64, shape `[B, C]`."""

    def __init__(self, calls_BT: torch.Tensor, *, device: torch.device) -> None:
        """Where the calls are numbered on the CPU, their number costs no wait for the device."""
        self.most = int(calls_BT.max()) + 1
        self._calls_BT = calls_BT.to(device)

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
        first_BC = torch.full(shape, start, dtype=torch.float64, device=values_BT.device)
        return first_BC.scatter_reduce(1, self._calls_BT, values_BT.double(), how)
