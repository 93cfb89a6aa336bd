"""Whether data vary: a test that compares numbers proves nothing where all of them are equal.

A test calls these before it compares, so that it fails once its data have become empty, zero or
all the same.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable

LEAST = 1e-9
"""Numbers that differ by no more are the same: what rounding leaves of a zero is no sign."""


def assert_several(values: Iterable[float], *, at_least: int = 2) -> None:
    """Fail unless there are so many different values."""
    distinct = {round(value / LEAST) for value in values}
    assert len(distinct) >= at_least, (
        f"{len(distinct)} different values, at least {at_least} are needed: "
        f"{[number * LEAST for number in sorted(distinct)]}"
    )


def assert_both_signs(values: Iterable[float]) -> None:
    """Fail unless some values are above zero and some below."""
    found = list(values)
    assert any(value > LEAST for value in found), f"none of {len(found)} values is above 0"
    assert any(value < -LEAST for value in found), f"none of {len(found)} values is below 0"


def assert_some_vary_within(pairs: Iterable[tuple[Hashable, float]], *, at_least: int = 1) -> None:
    """Fail unless the values of so many groups differ among themselves.

    Args:
        pairs: Name of a group, and a value of one of its members.
        at_least: Groups whose lowest and highest values must differ.
    """
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for name, value in pairs:
        groups[name].append(value)
    varying = [name for name, values in groups.items() if max(values) - min(values) > LEAST]
    assert len(varying) >= at_least, (
        f"the values differ within {len(varying)} of {len(groups)} groups, "
        f"at least {at_least} are needed"
    )
