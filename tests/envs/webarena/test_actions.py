"""How the authors' actions are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_envs.webarena.actions import Action, parse


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("click [3]", Action(verb="click", number=3)),
        (" click  [ 3 ] ", Action(verb="click", number=3)),
        ("hover [3]", Action(verb="hover", number=3)),
        ("type [3] [a b]", Action(verb="type", number=3, text="a b", presses_enter=True)),
        ("type [3] [a] [1]", Action(verb="type", number=3, text="a", presses_enter=True)),
        ("type [3] [a] [0]", Action(verb="type", number=3, text="a")),
        ("type [3] [a [b] c][0]", Action(verb="type", number=3, text="a [b] c")),
        ("press [Ctrl+a]", Action(verb="press", text="Control+a")),
        ("scroll [down]", Action(verb="scroll", text="down")),
        ("scroll up", Action(verb="scroll", text="up")),
        ("scroll [direction=up]", Action(verb="scroll", text="up")),
        ("tab_focus [1]", Action(verb="tab_focus", number=1)),
        ("new_tab", Action(verb="new_tab")),
        ("goto [http://a.test/[x]]", Action(verb="goto", text="http://a.test/[x]")),
        ("stop", Action(verb="stop")),
        ("stop []", Action(verb="stop")),
        ("stop [N/A]", Action(verb="stop", text="N/A")),
        ("stop [a [b] c]", Action(verb="stop", text="a [b] c")),
    ],
)
def test_an_action_is_read(written: str, action: Action) -> None:
    assert parse(written) == action


@pytest.mark.parametrize(
    "written",
    [
        "",
        "click",
        "click 3",
        "click [x]",
        "click [3",
        "click [-3]",
        "click it [3]",
        "type [3]",
        "type [3] []",
        "type [x] [a]",
        "press [F12]",
        "press",
        "scroll [left]",
        "goto []",
        "goto",
        "dance",
        "stop now",
        "[3]",
        "a" * 100000,
        "<action>click [3]</action>",
        "click [٣]",
    ],
)
def test_what_is_no_action_is_answered_in_words(written: str) -> None:
    assert isinstance(parse(written), str)


@given(st.text())
def test_no_text_is_too_strange(written: str) -> None:
    assert isinstance(parse(written), str | Action)
    assert isinstance(parse(f"type [3] {written}"), str | Action)
    assert isinstance(parse(f"goto [{written}"), str | Action)
