"""Keys that an agent may press: those that mean something to a page, and none to the browser.

A browser has keys of its own (a new window, its history, its developer tools), so a key is taken
from a list, and pressed together with others only where text is edited.
"""

__all__ = ["key_combination"]

_NAMES = (
    *("Enter", "Tab", "Escape", "Backspace", "Delete", "Insert", "Space", "Home", "End"),
    *("PageUp", "PageDown", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
    *("Shift", "Control"),
)
_NAMED = {name.lower(): name for name in _NAMES} | {
    "return": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
}
_MODIFIERS = {"ctrl": "Control", "control": "Control", "meta": "Control", "cmd": "Control"} | {
    "shift": "Shift"
}
_EDITING = frozenset("acvxyz")
_MOVING = frozenset(
    ("Home", "End", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Backspace", "Delete")
)


def key_combination(text: str) -> str | None:
    """The key in Playwright's words, such as `Control+a` for `ctrl+a`; None if it is not allowed.

    Args:
        text: One printable character, a key's name, or such a key after `Ctrl+`, `Meta+` (pressed
            as `Ctrl`) or `Shift+`; upper and lower case are alike in names.
    """
    if len(text) > 40:
        return None
    *before, last = text.split("+") if text != "+" else [text]
    modifiers = [_MODIFIERS.get(word.strip().lower()) for word in before]
    key = _NAMED.get(last.strip().lower()) or (last if _is_character(last) else None)
    if key is None or None in modifiers:
        return None
    if "Control" in modifiers and key.lower() not in _EDITING and key not in _MOVING:
        return None
    if "Control" in modifiers and len(key) == 1:
        key = key.lower()
    return "+".join([*dict.fromkeys(word for word in modifiers if word), key])


def _is_character(text: str) -> bool:
    return len(text) == 1 and text.isprintable()
