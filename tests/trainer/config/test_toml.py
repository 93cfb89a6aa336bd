"""Tests for `longhaul_trainer.config.toml`."""

import tomllib
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.config.toml import to_toml, toml_value

text = st.text(st.characters(codec="utf-8"))
scalar = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
value = st.recursive(
    scalar | st.lists(scalar, max_size=3), lambda inner: st.dictionaries(text, inner, max_size=3)
)


@given(st.dictionaries(text, value, max_size=4))
def test_a_table_reads_back_equal(table: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_tables_come_after_values_and_read_as_people_write_them() -> None:
    table = {"rollout": {"horizon": 4, "deep": {"x": 1.5}}, "name": "a", "empty": {}}

    assert to_toml(table) == (
        'name = "a"\n\n[rollout]\nhorizon = 4\n\n[rollout.deep]\nx = 1.5\n\n[empty]\n'
    )


@given(st.dictionaries(text, scalar, max_size=4))
def test_a_table_in_one_line_reads_back_equal(table: dict[str, object]) -> None:
    assert tomllib.loads(f"table = {toml_value(table)}") == {"table": table}


@pytest.mark.parametrize("nothing", [None, date(2026, 1, 1), {1, 2}])
def test_what_toml_or_a_run_does_not_have_is_refused(nothing: object) -> None:
    with pytest.raises(TypeError, match="a run's description holds no"):
        to_toml({"key": nothing})
