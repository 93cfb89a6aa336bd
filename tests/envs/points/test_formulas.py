"""Formulas: how they read, what they come to, and which hands have one."""

from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_envs.points.formulas import can_make, formulas, value_of

SIGNS = "+-*/"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8 - 3 * 2", Fraction(2)),
        ("8 - 3 - 2", Fraction(3)),
        ("8 / ( 3 - 8 / 3 )", Fraction(24)),  # 23.999… by floating point
        ("2 * ( 3 + 4 ) - 10", Fraction(4)),
        ("- 2 + 3", Fraction(1)),
        ("( ( 7 ) )", Fraction(7)),
        ("1 / ( 2 - 2 )", None),
        ("2 4", None),  # Python's eval would join them to 24
        ("2 * * 3", None),
        ("7 / / 2", None),
        ("( 3", None),
        ("3 )", None),
        ("( )", None),
        ("3 +", None),
        ("", None),
    ],
)
def test_a_formula_is_read_exactly(written: str, value: Fraction | None) -> None:
    assert value_of(written.split()) == value


@given(st.lists(st.sampled_from(["1", "2", "10", "+", "-", "*", "/", "(", ")"]), max_size=9))
def test_a_formula_is_what_python_reads_where_it_is_one(units: list[str]) -> None:
    value = value_of(units)
    if value is not None:
        exact = " ".join(f"Fraction({u})" if u.isdecimal() else u for u in units)
        assert value == eval(exact, {"Fraction": Fraction})


def test_566_of_715_hands_make_24() -> None:
    """The number that is known of the game of 24 with values up to 10."""
    hands = list(combinations_with_replacement(range(1, 11), 4))

    assert len(hands) == 715
    assert sum(can_make(hand, 24, SIGNS) for hand in hands) == 566


def test_what_can_be_made_is_what_has_a_formula() -> None:
    hands = list(combinations_with_replacement(range(1, 11), 4))[::40]
    for hand in hands:
        written = formulas(hand, 24, SIGNS)
        assert bool(written) == can_make(hand, 24, SIGNS)
        for units in written:
            assert value_of(units) == 24
            assert sorted(int(unit) for unit in units if unit.isdecimal()) == list(hand)


def test_parentheses_stand_only_where_they_are_needed() -> None:
    assert formulas((3, 3, 8, 8), 24, SIGNS) == (tuple("8/(3-8/3)"),)
    for units in formulas((1, 2, 3, 4), 24, SIGNS):
        for opened in (place for place, unit in enumerate(units) if unit == "("):
            depth, closed = 1, opened + 1
            while depth:
                depth += (units[closed] == "(") - (units[closed] == ")")
                closed += 1
            bare = units[:opened] + units[opened + 1 : closed - 1] + units[closed:]
            assert value_of(bare) != 24 or "-" in units[:opened] or "/" in units[:opened]
