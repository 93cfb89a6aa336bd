"""Columns of a batch, as verl's workers and agent loops take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from longhaul_trainer.training.credit import TrainedCall
from longhaul_trainer.training.spans import FloatArray, in_response


def objects(values: Sequence[object]) -> np.ndarray:
    """Values as one array of objects, whatever they are."""
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


def responses(
    rows: Sequence[Sequence[TrainedCall]],
    lengths: Sequence[int],
    values: Callable[[TrainedCall], FloatArray],
) -> torch.Tensor:
    """A jagged tensor of responses, each of its length, with the values of its calls' replies."""
    placed = [
        in_response([call.span for call in calls], [values(c) for c in calls], num_tokens=length)
        for calls, length in zip(rows, lengths, strict=True)
    ]
    return torch.nested.as_nested_tensor(
        [torch.from_numpy(response).float() for response in placed], layout=torch.jagged
    )


def token_weights(call: TrainedCall) -> FloatArray:
    """The weight of each token of the call."""
    return np.full(call.span.action_tokens, call.loss_weight)


def token_targets(call: TrainedCall) -> FloatArray:
    """The value target of each token of the call."""
    return np.full(call.span.action_tokens, call.value_target)
