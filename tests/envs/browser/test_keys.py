"""Which keys an agent may press."""

import pytest

from longhaul_envs.browser.keys import key_combination


@pytest.mark.parametrize(
    ("written", "pressed"),
    [
        ("Enter", "Enter"),
        ("enter", "Enter"),
        ("esc", "Escape"),
        ("down", "ArrowDown"),
        ("a", "a"),
        ("+", "+"),
        ("é", "é"),
        ("Ctrl+a", "Control+a"),
        ("meta+A", "Control+a"),
        ("ctrl+shift+End", "Control+Shift+End"),
        ("shift+Tab", "Shift+Tab"),
    ],
)
def test_a_key_has_its_name_in_playwright(written: str, pressed: str) -> None:
    assert key_combination(written) == pressed


@pytest.mark.parametrize(
    "written",
    [
        "",
        "ab",
        "F12",
        "ctrl+t",
        "ctrl+n",
        "ctrl+j",
        "ctrl+shift+i",
        "alt+left",
        "ctrl+",
        "++a",
        "ctrl+Enter+a",
        "\n",
        "\x00",
        "a" * 100000,
    ],
)
def test_keys_of_the_browser_itself_and_what_is_no_key_are_refused(written: str) -> None:
    assert key_combination(written) is None
