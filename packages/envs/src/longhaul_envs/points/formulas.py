"""Formulas written unit by unit, their exact value, and the search for one that gives a target."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import permutations, product

__all__ = ["can_make", "formulas", "value_of"]

Units = tuple[str, ...]
"""A formula: numbers, operators and parentheses, each a text of its own."""

_SUM, _PRODUCT, _ATOM = 1, 2, 3
_STRENGTH = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}


def value_of(units: Sequence[str]) -> Fraction | None:
    """What a formula comes to, exactly; None if it is none, or divides by zero.

    A sign may stand before a number or a parenthesis. Two numbers side by side are no formula.
    """
    reader = _Reader(units)
    try:
        value = reader.sum()
    except (_NoFormulaError, ZeroDivisionError):
        return None
    return value if reader.is_at_end() else None


class _NoFormulaError(Exception):
    """The units do not read as a formula."""


class _Reader:
    """Recursive descent, at most as deep as the formula is long."""

    def __init__(self, units: Sequence[str]) -> None:
        self._units = units
        self._place = 0

    def is_at_end(self) -> bool:
        return self._place == len(self._units)

    def sum(self) -> Fraction:
        value = self._product()
        while (operator := self._next_of("+-")) is not None:
            other = self._product()
            value = value + other if operator == "+" else value - other
        return value

    def _product(self) -> Fraction:
        value = self._atom()
        while (operator := self._next_of("*/")) is not None:
            other = self._atom()
            value = value * other if operator == "*" else value / other
        return value

    def _atom(self) -> Fraction:
        sign = self._next_of("+-")
        if sign is not None:
            value = self._atom()
            return -value if sign == "-" else value
        if self._next_of("(") is not None:
            value = self.sum()
            if self._next_of(")") is None:
                raise _NoFormulaError
            return value
        if self.is_at_end() or not self._units[self._place].isdecimal():
            raise _NoFormulaError
        self._place += 1
        return Fraction(int(self._units[self._place - 1]))

    def _next_of(self, wanted: str) -> str | None:
        """The next unit, taken, if it is one of `wanted`."""
        if self.is_at_end() or self._units[self._place] not in wanted:
            return None
        self._place += 1
        return self._units[self._place - 1]


def can_make(values: Iterable[int], target: int, operators: str) -> bool:
    """Whether a formula of all `values`, each used once, comes to `target`."""
    whole, goal = tuple(sorted(values)), Fraction(target)
    if len(whole) == 1:
        return whole[0] == goal
    return any(
        _meet(_reachable(left, operators), _reachable(right, operators), goal, operators)
        for left, right in _halves(whole)
    )


def _meet(
    lefts: frozenset[Fraction], rights: frozenset[Fraction], goal: Fraction, operators: str
) -> bool:
    """Whether one of `lefts` and one of `rights`, in this order, come to `goal`.

    The few are gone through, and the many are looked up.
    """
    if len(rights) <= len(lefts):
        return any(
            ("+" in operators and goal - b in lefts)
            or ("-" in operators and goal + b in lefts)
            or ("*" in operators and b and goal / b in lefts)
            or ("/" in operators and b and goal * b in lefts)
            for b in rights
        )
    return any(
        ("+" in operators and goal - a in rights)
        or ("-" in operators and a - goal in rights)
        or ("*" in operators and a and goal / a in rights)
        or ("/" in operators and a and goal and a / goal in rights)
        for a in lefts
    )


def _halves(values: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every way to part `values` in two, neither of them empty."""
    for chosen in range(1, 2 ** len(values) - 1):
        yield (
            tuple(value for place, value in enumerate(values) if chosen >> place & 1),
            tuple(value for place, value in enumerate(values) if not chosen >> place & 1),
        )


@cache
def _reachable(values: tuple[int, ...], operators: str) -> frozenset[Fraction]:
    """Every value of a formula that uses all of `values`."""
    if len(values) == 1:
        return frozenset({Fraction(values[0])})
    found: set[Fraction] = set()
    for left, right in _halves(values):
        for a, b in product(_reachable(left, operators), _reachable(right, operators)):
            found.update(_apply(operator, a, b) for operator in operators if b or operator != "/")
    return frozenset(found)


@lru_cache(maxsize=1024)
def formulas(values: tuple[int, ...], target: int, operators: str) -> tuple[Units, ...]:
    """Every formula of all `values` that comes to `target`, the shortest first.

    Parentheses stand only where they are needed, and no sign stands before a number.
    """
    found = {
        units
        for ordered in set(permutations(values))
        for value, units, _ in _written(ordered, operators)
        if value == target
    }
    return tuple(sorted(found, key=lambda units: (len(units), units)))


@lru_cache(maxsize=256)
def _written(values: tuple[int, ...], operators: str) -> tuple[tuple[Fraction, Units, int], ...]:
    """Every formula of `values` in this order: its value, its units, how strongly it binds."""
    if len(values) == 1:
        return ((Fraction(values[0]), (str(values[0]),), _ATOM),)
    return tuple(
        written
        for cut in range(1, len(values))
        for left in _written(values[:cut], operators)
        for right in _written(values[cut:], operators)
        for written in _joined(left, right, operators)
    )


def _joined(
    left: tuple[Fraction, Units, int], right: tuple[Fraction, Units, int], operators: str
) -> Iterator[tuple[Fraction, Units, int]]:
    for operator in operators:
        if operator == "/" and not right[0]:
            continue
        strength = _STRENGTH[operator]
        # `a - (b + c)` and `a / (b * c)` need their parentheses; `a + (b - c)` does not
        right_needs = strength + (operator in "-/")
        units = (*_within(left, strength), operator, *_within(right, right_needs))
        yield _apply(operator, left[0], right[0]), units, strength


def _within(part: tuple[Fraction, Units, int], strength: int) -> Units:
    _, units, own = part
    return units if own >= strength else ("(", *units, ")")


def _apply(operator: str, a: Fraction, b: Fraction) -> Fraction:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            return a / b
