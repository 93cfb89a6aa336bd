"""HTML blocks: whatever text they are given stays text."""

from collections.abc import Callable

import pytest

from longhaul_core.types import Message
from longhaul_viewer.components.blocks import (
    Badge,
    Fact,
    Link,
    MemberLink,
    action_chips,
    badges,
    facts,
    label,
    members,
    messages,
    number,
    text_block,
    times,
    trail,
)

HOSTILE = "<script>alert('x')</script>\" onclick=\"y"
BLOCKS: dict[str, Callable[[], str]] = {
    "label": lambda: label(HOSTILE, HOSTILE),
    "badges": lambda: badges([Badge(HOSTILE)]),
    "text_block": lambda: text_block(HOSTILE),
    "messages": lambda: messages([Message(role="user", content=HOSTILE)]),
    "facts": lambda: facts([Fact(HOSTILE, HOSTILE, explanation=HOSTILE)]),
    "action_chips": lambda: action_chips([HOSTILE], chosen=HOSTILE),
    "trail": lambda: trail([Link(HOSTILE), Link(HOSTILE, HOSTILE)]),
    "members": lambda: members([MemberLink(HOSTILE, HOSTILE, "plain", here=False)]),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_hostile_text_stays_text(name: str) -> None:
    block = BLOCKS[name]()
    assert "<script" not in block
    assert '" onclick=' not in block
    assert "&lt;script&gt;" in block


def test_numbers_have_a_true_minus_and_unknown_ones_a_dash() -> None:
    assert number(-0.5) == "−0.5"
    assert number(0.25, signed=True) == "+0.25"
    assert number(-0.0) == "0"
    assert number(None) == "–"


def test_the_bar_of_times_is_as_wide_as_the_step_took() -> None:
    bar = times(queue=1.0, generate=2.0, environment=1.0)
    assert [part in bar for part in ("25.00%", "50.00%")] == [True, True]
    assert times(queue=0.0, generate=0.0, environment=0.0) == ""
