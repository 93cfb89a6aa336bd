"""How actions are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_envs.miniwob.actions import Action, parse


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("click 3", Action(verb="click", place=3)),
        (" CLICK [3] ", Action(verb="click", place=3)),
        ("double_click 80,120", Action(verb="double_click", place=(80, 120))),
        ('type 3 "a \\"b\\" c"', Action(verb="type", place=3, text='a "b" c')),
        ('type 3 ""', Action(verb="type", place=3)),
        ('select 4 "Côte d\'Ivoire"', Action(verb="select", place=4, text="Côte d'Ivoire")),
        ("press ctrl+a", Action(verb="press", text="Control+a")),
        ("scroll down", Action(verb="scroll", text="down")),
        ("scroll 3 up", Action(verb="scroll", place=3, text="up")),
        ("drag 3 to 5", Action(verb="drag", place=3, to=5)),
        ("drag 1,2 to 30,40", Action(verb="drag", place=(1, 2), to=(30, 40))),
        ("drag 3 by -20,5", Action(verb="drag", place=3, by=(-20, 5))),
        ("wait", Action(verb="wait")),
    ],
)
def test_an_action_is_read(written: str, action: Action) -> None:
    assert parse(written) == action


@pytest.mark.parametrize(
    "written",
    [
        "",
        "click",
        "click x",
        "click -3",
        "click 3 4",
        "click 1,2,3",
        "click -1,2",
        "click 9999999",
        "type 3 abc",
        'type "abc"',
        'type 3 "abc',
        "press F12",
        "scroll",
        "scroll 3",
        "wait 3",
        "drag 3",
        "drag 3 to",
        "drag 3 5",
        "drag 3 by 5",
        "click ٣",
        "fly 3",
        "a" * 100000,
        "type 3 " + '"' * 1900,
        "<action>click 3</action>",
        "click 3\x00",
    ],
)
def test_what_is_no_action_is_answered_in_words(written: str) -> None:
    assert isinstance(parse(written), str)


@given(st.text())
def test_no_text_is_too_strange(written: str) -> None:
    assert isinstance(parse(written), str | Action)
    assert isinstance(parse(f"type 3 {written}"), str | Action)
    assert isinstance(parse(f"drag 3 {written}"), str | Action)
