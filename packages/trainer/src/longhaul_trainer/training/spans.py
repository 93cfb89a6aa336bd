"""Between a step's action and its place in a row's response.

A response is the actions of the row's steps, in order, and between two of them a gap: what
the later prompt adds to the earlier prompt and action. Nothing in a gap was sampled.

T tokens of a response.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from longhaul_trainer.training.step_metadata import StepMetadata

FloatArray = npt.NDArray[np.float64]


def in_response(
    notes: Sequence[StepMetadata], values: Sequence[FloatArray], *, num_tokens: int
) -> FloatArray:
    """The values of a row's response, shape `[T]`: each action's in its place, 0 in the gaps.

    Args:
        notes: Of the row's steps, in order.
        values: For each step, one number per token of its action.
        num_tokens: Of the response (T).

    Raises:
        ValueError: If a step has another number of values than of tokens, or the actions
            overlap or do not fit into the response.
    """
    response_T = np.zeros(num_tokens)
    end = 0
    for note, of_step in zip(notes, values, strict=True):
        if of_step.shape != (note.action_tokens,):
            raise ValueError(
                f"step {note.step} has {note.action_tokens} action tokens, "
                f"got values of shape {of_step.shape}"
            )
        if note.start < end or note.stop > num_tokens:
            raise ValueError(
                f"the action of step {note.step} at {note.start} to {note.stop} is not between "
                f"the one before it, which ends at {end}, and the response's end at {num_tokens}"
            )
        response_T[note.start : note.stop] = of_step
        end = note.stop
    return response_T


def of_action(note: StepMetadata, response_T: torch.Tensor) -> torch.Tensor:
    """The part of a row's response that is the step's action.

    Raises:
        ValueError: If the response ends before the action does.
    """
    if note.stop > len(response_T):
        raise ValueError(
            f"the action of step {note.step} ends at {note.stop}, and its row's response at "
            f"{len(response_T)}"
        )
    return response_T[note.start : note.stop]


def action_numbers(rows: Sequence[Sequence[StepMetadata]], *, num_tokens: int) -> torch.Tensor:
    """Which of its row's actions a token belongs to, from 0; int64, shape `[B, T]`.

    A gap, and what fills a row up to T, belong to the action before them.

    Args:
        rows: For each row, the notes of its steps in order.
        num_tokens: Of the longest response (T).
    """
    starts_BT = torch.zeros(len(rows), num_tokens, dtype=torch.int64)
    for row, notes in enumerate(rows):
        for note in notes[1:]:
            if note.start < num_tokens:  # a row that only fills up has the notes of a longer one
                starts_BT[row, note.start] += 1
    return starts_BT.cumsum(-1)
