"""Tokens that a program's prompts repeat, and that the engine had to read again all the same.

A prompt that begins with all of an earlier call costs what is new in it: the engine's prefix cache
has the rest, and merged rows read it once. Where a program changes an early message, what follows
is read again, in the engine and in the learner.

Shapes: T tokens of a prompt, W windows of it.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from longhaul_core.types import Call, Continuation

__all__ = ["WINDOW", "num_repeated_tokens"]

WINDOW = 16
"""Tokens in a row that are no repetition by chance."""

_Tokens = npt.NDArray[np.uint64]
_FACTORS = np.random.default_rng(0).integers(1 << 63, size=WINDOW, dtype=np.uint64) * 2 + 1


def num_repeated_tokens(calls: Sequence[Call]) -> list[int]:
    """How many tokens of each call's prompt were read before, and not at its beginning.

    Counted are prompts that are `forked` or `changed`: tokens behind the longest beginning that the
    prompt shares with the tokens of an earlier call, in stretches of `WINDOW` tokens or more that
    some earlier call read or wrote.

    Args:
        calls: Of one episode, in order.

    Returns:
        A number for each call; 0 where its tokens are unknown.
    """
    counts = [0] * len(calls)
    begins_anew = [
        call.continuation in (Continuation.FORKED, Continuation.CHANGED) for call in calls
    ]
    last = max((place for place, anew in enumerate(begins_anew) if anew), default=-1)
    earlier: list[_Tokens] = []
    known_W = np.zeros(0, dtype=np.uint64)
    for place, call in enumerate(calls[: last + 1]):
        if call.sampled is None:
            continue
        prompt_T = np.array(call.sampled.prompt_tokens, dtype=np.uint64)
        if begins_anew[place]:
            shared = max((_num_shared(prompt_T, other) for other in earlier), default=0)
            counts[place] = _num_covered(np.isin(_windows(prompt_T[shared:]), known_W))
        whole_T = np.concatenate((prompt_T, np.array(call.sampled.action_tokens, dtype=np.uint64)))
        earlier.append(whole_T)
        known_W = np.union1d(known_W, _windows(whole_T))
    return counts


def _windows(tokens_T: _Tokens) -> _Tokens:
    """A hash of each `WINDOW` consecutive tokens; they wrap around at 64 bits."""
    if len(tokens_T) < WINDOW:
        return np.zeros(0, dtype=np.uint64)
    return np.lib.stride_tricks.sliding_window_view(tokens_T, WINDOW) @ _FACTORS


def _num_shared(one: _Tokens, other: _Tokens) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _num_covered(found_W: npt.NDArray[np.bool_]) -> int:
    """Tokens that lie in one of the windows that were found."""
    steps = np.zeros(len(found_W) + WINDOW, dtype=np.int64)
    places = np.flatnonzero(found_W)
    steps[places] += 1
    steps[places + WINDOW] -= 1
    return sum(depth > 0 for depth in accumulate(steps.tolist()))
