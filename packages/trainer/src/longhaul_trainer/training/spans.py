"""Between the tokens of a call and their place in a row's response.

A response is the replies of the row's calls, in order, and between two of them a gap: what
the later prompt adds to the earlier prompt and reply. Nothing in a gap was sampled.

T tokens of a response.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from longhaul_trainer.training.step_metadata import CallSpan

FloatArray = npt.NDArray[np.float64]


def put_into_response(
    response_T: npt.NDArray[np.floating],
    spans: Sequence[CallSpan],
    values: Sequence[FloatArray],
) -> None:
    """Put each call's values into their place of a row's response, and leave the gaps.

    Args:
        response_T: Shape `[T]`, changed in place.
        spans: Of the row's calls, in order.
        values: For each call, one number per token of its reply.

    Raises:
        ValueError: If a call has another number of values than of tokens, or the calls
            overlap or do not fit into the response.
    """
    end, num_tokens = 0, len(response_T)
    for span, of_call in zip(spans, values, strict=True):
        if of_call.shape != (span.action_tokens,):
            raise ValueError(
                f"call {span.call} of step {span.step} has {span.action_tokens} tokens, "
                f"got values of shape {of_call.shape}"
            )
        if span.start < end or span.stop > num_tokens:
            raise ValueError(
                f"call {span.call} of step {span.step} at {span.start} to {span.stop} is not "
                f"between the one before it, which ends at {end}, and the response's end at "
                f"{num_tokens}"
            )
        response_T[span.start : span.stop] = of_call
        end = span.stop


def of_call(span: CallSpan, response_T: torch.Tensor) -> torch.Tensor:
    """The part of a row's response that is the call's reply.

    Raises:
        ValueError: If the response ends before the reply does.
    """
    if span.stop > len(response_T):
        raise ValueError(
            f"call {span.call} of step {span.step} ends at {span.stop}, and its row's response at "
            f"{len(response_T)}"
        )
    return response_T[span.start : span.stop]


def call_numbers(rows: Sequence[Sequence[CallSpan]], *, num_tokens: int) -> torch.Tensor:
    """Which of its row's calls a token belongs to, from 0; int64, shape `[B, T]`.

    A gap, and what fills a row up to T, belong to the call before them.

    Args:
        rows: For each row, the spans of its calls in order.
        num_tokens: Of the longest response (T).
    """
    starts_BT = torch.zeros(len(rows), num_tokens, dtype=torch.int64)
    for row, spans in enumerate(rows):
        for span in spans[1:]:
            if span.start < num_tokens:  # a row that only fills up has the spans of a longer one
                starts_BT[row, span.start] += 1
    return starts_BT.cumsum(-1)
