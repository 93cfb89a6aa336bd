"""Refusals that the advantage functions share: each names the argument, its value and the limit.

A comparison with NaN is false, so limits are written as what must hold.
"""

from typing import get_args

import numpy as np
import numpy.typing as npt

LARGEST = 1e100
"""Size of a reward, value or weight, at most: sums, squares and products of such numbers stay
finite, and an advantage is a number. The largest float, 1.8e308, is not to be added to itself."""


def check_choice(value: object, choices: object, *, name: str) -> None:
    """Refuse what is none of the values of a `Literal`.

    Args:
        value: That was given.
        choices: The `Literal` type.
        name: Of the argument.

    Raises:
        ValueError: If `value` is none of `choices`.
    """
    allowed: tuple[object, ...] = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def check_fraction(value: float, *, name: str) -> None:
    """Refuse what lies outside [0, 1].

    Raises:
        ValueError: If it does, or is NaN.
    """
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


def check_weight(value: float, *, name: str) -> None:
    """Refuse a weight that is negative, NaN or larger than `LARGEST`.

    Raises:
        ValueError: If it is.
    """
    if not 0.0 <= value <= LARGEST:
        raise ValueError(f"{name} must lie in [0, {LARGEST:g}], got {value}")


def check_numbers(values: npt.ArrayLike, *, name: str) -> None:
    """Refuse numbers that are not finite, or larger than `LARGEST` in size.

    Args:
        values: One number or an array of them.
        name: What they are; in an array the place is added.

    Raises:
        ValueError: For the first of them.
    """
    numbers = np.asarray(values, dtype=np.float64)
    wrong = np.argwhere(~(np.abs(numbers) <= LARGEST))
    if len(wrong) == 0:
        return
    place = tuple(wrong[0].tolist())
    number = float(numbers[place])
    where = f", place {place[0]}" if place else ""
    if not np.isfinite(number):
        raise ValueError(f"{name}{where} must be finite, got {number}")
    raise ValueError(
        f"{name}{where} must be at most {LARGEST:g} in size, got {number}: sums and squares of "
        "such numbers overflow"
    )
