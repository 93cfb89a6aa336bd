"""Columns of a batch, as verl's workers and agent loops take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from longhaul_trainer.training.credit import TrainedStep
from longhaul_trainer.training.spans import FloatArray, in_response


def objects(values: Sequence[object]) -> np.ndarray:
    """Values as one array of objects, whatever they are."""
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


def responses(
    rows: Sequence[Sequence[TrainedStep]],
    lengths: Sequence[int],
    values: Callable[[TrainedStep], FloatArray],
) -> torch.Tensor:
    """A jagged tensor of responses, each of its length, with the values of its steps' actions."""
    placed = [
        in_response([step.note for step in steps], [values(s) for s in steps], num_tokens=length)
        for steps, length in zip(rows, lengths, strict=True)
    ]
    return torch.nested.as_nested_tensor(
        [torch.from_numpy(response).float() for response in placed], layout=torch.jagged
    )


def token_weights(step: TrainedStep) -> FloatArray:
    """The weight of each token of the step's action."""
    return np.full(step.note.action_tokens, step.loss_weight)


def token_targets(step: TrainedStep) -> FloatArray:
    """What the critic should have said of each token of the step's action."""
    return np.full(step.note.action_tokens, step.value_target)
