"""Columns of a batch, as verl's workers and agent loops take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from longhaul_trainer.training.credit import TrainedCall
from longhaul_trainer.training.spans import FloatArray, put_into_response


def objects(values: Sequence[object]) -> np.ndarray:
    """Values as one array of objects, whatever they are."""
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


def by_row(calls: Sequence[TrainedCall]) -> dict[str, list[TrainedCall]]:
    """Calls by the key of the row that they are in, in order."""
    rows: dict[str, list[TrainedCall]] = {}
    for call in calls:
        rows.setdefault(call.row, []).append(call)
    return rows


def responses(
    rows: Sequence[Sequence[TrainedCall]],
    lengths: Sequence[int],
    values: Callable[[TrainedCall], FloatArray],
) -> torch.Tensor:
    """A jagged tensor of responses, float32, each of its length, with the values of its calls.

    It is filled in one piece: a tensor for each row would cost more than its numbers.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    whole = np.zeros(offsets[-1], dtype=np.float32)
    for calls, start, stop in zip(rows, offsets[:-1], offsets[1:], strict=True):
        put_into_response(whole[start:stop], [c.span for c in calls], [values(c) for c in calls])
    return torch.nested.nested_tensor_from_jagged(
        torch.from_numpy(whole), torch.from_numpy(offsets)
    )


def token_weights(call: TrainedCall) -> FloatArray:
    """The weight of each token of the call."""
    return np.full(call.span.action_tokens, call.loss_weight)


def token_targets(call: TrainedCall) -> FloatArray:
    """The value target of each token of the call."""
    return np.full(call.span.action_tokens, call.value_target)
