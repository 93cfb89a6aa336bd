"""When two results say the same."""

import pytest

from longhaul_envs.sql.box import Result, Value
from longhaul_envs.sql.scoring import asks_for_order, same_result


def result(*rows: tuple[Value, ...], is_whole: bool = True) -> Result:
    return Result(tuple("ab")[: len(rows[0]) if rows else 1], rows, is_whole)


def same(found: Result, gold: Result, *, ordered: bool = False, as_sets: bool = False) -> bool:
    return same_result(found, gold, ordered=ordered, as_sets=as_sets)


def test_order_counts_only_where_it_is_asked_for() -> None:
    one, other = result((1,), (2,)), result((2,), (1,))
    assert same(one, other)
    assert not same(one, other, ordered=True)
    assert same(one, one, ordered=True)


def test_equal_rows_count_but_not_as_sets() -> None:
    once, twice = result((1,)), result((1,), (1,))
    assert not same(once, twice)
    assert same(once, twice, as_sets=True)
    assert not same(once, result((2,)), as_sets=True)


def test_numbers_are_compared_to_nine_digits_and_text_exactly() -> None:
    assert same(result((0.1 + 0.2,)), result((0.3,)))
    assert same(result((2,)), result((2.0,)))
    assert not same(result((0.30001,)), result((0.3,)))
    assert not same(result(("2",)), result((2,)))
    assert not same(result(("Oak",)), result(("oak",)))
    assert not same(result((None,)), result((0,)))


def test_columns_count_in_order() -> None:
    assert not same(result((1, 2)), result((2, 1)))
    assert not same(result((1, 2)), result((1,)))
    assert not same(Result(("a", "b"), (), is_whole=True), Result(("a",), (), is_whole=True))


def test_what_was_cut_off_is_never_the_same() -> None:
    assert not same(result((1,), is_whole=False), result((1,), is_whole=False))


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n  by a limit 1", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT ROW_NUMBER() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'x ORDER BY y' FROM t", False),
        ('SELECT "order by" FROM t', False),
        ("SELECT `order` FROM t -- order by a", False),
        ("SELECT a /* ORDER BY */ FROM t", False),
        ("SELECT a FROM t ORDER /* so */ BY a", True),
        ("SELECT reorder, by_a FROM t", False),
        ("SELECT 'unfinished ORDER BY", False),
        ("SELECT a FROM t /* unfinished ORDER BY", False),
    ],
)
def test_an_outer_order_by_is_found(sql: str, ordered: bool) -> None:
    assert asks_for_order(sql) is ordered
