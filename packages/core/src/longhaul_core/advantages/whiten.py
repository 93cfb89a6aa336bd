"""Whitening: values of a whole training step to mean 0 and deviation 1.

Shapes: N values.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from longhaul_core.advantages.arguments import check_choice, check_numbers, check_weight
from longhaul_core.advantages.credit import FloatArray

Whiten = Literal["token", "episode"]
"""What counts the same in the mean and the deviation.

`"token"`: every action token, so long actions and long episodes count more; verl's form.
`"episode"`: every episode, and inside it every action token.
"""

ROUNDING = 1e-9
"""By how much the fractions of one episode may add up to more than 1."""

VARIANCE_EPSILON = 1e-8
"""Added to a variance before its root is divided by, as verl has it."""


def whitened(values_N: FloatArray, counts_N: FloatArray) -> FloatArray:
    r"""Values with their weighted mean taken off, in units of their deviation, shape (N,).

        (v - mean) / sqrt(variance + 1e-8)
        mean = sum c v / C,   variance = sum c (v - mean)^2 / (C - 1),   C = sum c

    Args:
        values_N: At most 1e100 in size.
        counts_N: How often each value counts, from 0 to 1e100; what counts 0 times moves no
            statistic.

    Returns:
        Exactly zero everywhere if all values are equal, or if the counts do not add up to more
        than 1: nothing is there to compare with.

    Raises:
        ValueError: If a value or a count is out of range, or they differ in number.
    """
    if values_N.shape != counts_N.shape:
        raise ValueError(
            f"one count per value is required: got shapes {values_N.shape} and {counts_N.shape}"
        )
    check_numbers(values_N, name="value")
    check_numbers(counts_N, name="count")
    check_weight(float(counts_N.min(initial=0.0)), name="count")
    total = float(counts_N.sum())
    if total < 1.0 + ROUNDING:
        return np.zeros_like(values_N)
    # Measured from one member, equal values are exactly 0 whatever their rounding.
    offsets_N = values_N - values_N[np.argmax(counts_N > 0)]
    centered_N = offsets_N - (counts_N * offsets_N).sum() / total
    variance = (counts_N * centered_N**2).sum() / (total - 1.0)
    return centered_N / np.sqrt(variance + VARIANCE_EPSILON)


def step_counts(num_action_tokens: Sequence[Sequence[int]], *, whiten: Whiten) -> FloatArray:
    """How often each step of a training step counts, for `whitened`, shape (N,).

    Args:
        num_action_tokens: For each episode, the tokens of each step's action; a step
            without tokens counts 0 times.
        whiten: See `Whiten`; with `"episode"` an episode's counts add up to 1.

    Raises:
        ValueError: If a number of tokens is negative, or `whiten` is no `Whiten`.
    """
    check_choice(whiten, Whiten, name="whiten")
    counts: list[float] = []
    for episode, tokens in enumerate(num_action_tokens):
        if min(tokens, default=0) < 0:
            raise ValueError(
                f"numbers of action tokens of episode {episode} must not be negative, "
                f"got {min(tokens)}"
            )
        total = sum(tokens) if whiten == "episode" else 1
        counts += [number / total if number else 0.0 for number in tokens]
    return np.array(counts)
