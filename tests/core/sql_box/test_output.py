"""What comes back from the box on both databases: texts as they are, mistakes where they stand."""

import pytest

from core.sql_box.conftest import Box
from longhaul_core.errors import QueryError
from longhaul_core.sql_box.box import run_query

ENDS_OF_LINES = "a\u2028b\u2029c\x85d\ne\rf\x0bg"


def test_a_text_comes_back_whole_whatever_ends_lines_in_it(box: Box) -> None:
    found = run_query(box.url, f"SELECT '{ENDS_OF_LINES}' AS \"a\u2028b\", 1 AS one")
    assert found.columns == ("a\u2028b", "one")
    assert found.rows == ((ENDS_OF_LINES, 1),)


def test_a_mistake_stands_where_the_given_statement_has_it(box: Box) -> None:
    sql = "\n\n  SELECT '\u2028',\n  nope FROM runs;\n"
    with pytest.raises(QueryError) as caught:
        run_query(box.url, sql)
    assert caught.value.position == sql.index("nope")
    assert str(caught.value).endswith("\nline 4, column 3:\n  nope FROM runs\n  ^")


def test_a_mistake_in_the_first_word_has_its_place(box: Box) -> None:
    with pytest.raises(QueryError) as caught:
        run_query(box.url, "SELEC 1")
    assert caught.value.position == 0
    assert "line 1, column 1:\nSELEC 1\n^" in str(caught.value)
