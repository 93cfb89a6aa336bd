"""Rows of a worker, cut into micro-batches a part at a time.

verl's engine cuts the rows of a call into micro-batches before it computes the first, and each
micro-batch unpacks all of them (`tensordict_utils.index_select_tensor_dict`): the time is quadratic
in rows, and the GPU waits for it. 6,400 rows of 2,150 tokens take a worker's processor 619 s at
once (`benchmarks/micro_batches.py` compares that with parts of 256).

What is computed of a row does not depend on the rows beside it, and an update adds up the gradients
of its micro-batches, however they were cut: its losses are weighted sums over the tokens of the
optimizer step (`loss`), whose weights the trainer has given to each token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from verl.workers.engine.base import BaseEngine

ROWS_AT_ONCE = 256
"""Of a worker."""


class RowsInParts(BaseEngine):
    """An engine of verl that cuts many rows part by part. Put it before verl's engine."""

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any] | None, forward_only: bool = False
    ) -> dict[str, Any]:
        """As verl's: the same outputs in the order of the rows, and the same gradient.

        Every rank must have equally many rows, which verl makes sure of. The loss must not depend
        on `batch_num_tokens`, which verl counts for each part.
        """
        engine: Any = super()
        outputs = [
            engine.forward_backward_batch(part, loss_function, forward_only)
            for part in parts_of(data, rows_at_once=ROWS_AT_ONCE)
        ]
        return outputs[0] if len(outputs) == 1 else _joined(outputs)


def parts_of(data: TensorDict, *, rows_at_once: int) -> list[TensorDict]:
    """Rows in their order, in parts of at most so many."""
    if len(data) <= rows_at_once:
        return [data]
    return [
        _part(data, slice(start, min(start + rows_at_once, len(data))))
        for start in range(0, len(data), rows_at_once)
    ]


def _part(data: TensorDict, rows: slice) -> TensorDict:
    """Some rows, nested tensors cut out of their values, and all values of the whole batch."""
    return TensorDict(
        {name: _cut(value, rows) for name, value in data.items()},
        batch_size=rows.stop - rows.start,
    )


def _cut(value: Any, rows: slice) -> Any:  # noqa: ANN401  a tensor, or a stack of other things
    if not getattr(value, "is_nested", False):
        return value[rows] if value.shape else value
    ragged: int = value._ragged_idx
    offsets = value.offsets()[rows.start : rows.stop + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    return torch.nested.nested_tensor_from_jagged(
        value.values().narrow(ragged - 1, start, end - start), offsets - start, jagged_dim=ragged
    )


def _joined(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """What verl's engine returns of several parts, as of all their rows."""
    model_output = {
        name: torch.nested.as_nested_tensor(
            [row for output in outputs for row in output["model_output"][name].unbind()],
            layout=torch.jagged,
        )
        for name in outputs[0]["model_output"]
    }
    first, *others = outputs
    metrics = first["metrics"]
    for output in others:
        for name, values in output["metrics"].items():
            metrics[name].extend(values)
    return {
        "model_output": model_output,
        "loss": [loss for output in outputs for loss in output["loss"]],
        "metrics": metrics,
    }
