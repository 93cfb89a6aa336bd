"""HTML blocks: whatever text they are given stays text."""

from collections.abc import Callable

import pytest

from longhaul_viewer.components.blocks import (
    Badge,
    Fact,
    Link,
    alert,
    badges,
    facts,
    label,
    number,
    text_block,
    trail,
)

HOSTILE = "<script>alert('x')</script>\" onclick=\"y"


BLOCKS: dict[str, Callable[[], str]] = {
    "label": lambda: label(HOSTILE, HOSTILE),
    "badges": lambda: badges([Badge(HOSTILE)]),
    "alert": lambda: alert(f"{HOSTILE} `{HOSTILE}`"),
    "text_block": lambda: text_block(HOSTILE),
    "facts": lambda: facts([Fact(HOSTILE, HOSTILE, explanation=HOSTILE)]),
    "trail": lambda: trail([Link(HOSTILE), Link(HOSTILE, HOSTILE)]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_hostile_text_stays_text(name: str) -> None:
    block = BLOCKS[name]()
    assert "<script" not in block
    assert '" onclick=' not in block
    assert "&lt;script&gt;" in block


def test_a_command_in_an_error_is_set_as_one() -> None:
    assert "(<code>trainer evaluate</code> plays" in alert("(`trainer evaluate` plays")
    unclosed = alert('unrecognized token: "`run_id FROM x"')
    assert "`run_id FROM x" in unclosed
    assert "<code>" not in unclosed


def test_numbers_have_a_true_minus_and_unknown_ones_a_dash() -> None:
    assert number(-0.5) == "−0.5"
    assert number(0.25, signed=True) == "+0.25"
    assert number(-0.0) == "0"
    assert number(None) == "–"
