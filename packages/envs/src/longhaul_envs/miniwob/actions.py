"""What an agent writes in MiniWoB++, read word by word.

A place is the number of an element, such as `7`, or a point of the page in pixels, such as
`80,120`.
"""

import json
from dataclasses import dataclass
from typing import cast

from longhaul_envs.browser.keys import key_combination

__all__ = ["Action", "Place", "parse"]

_MAX_CHARACTERS = 2_000
_MAX_PIXEL = 4_000

Place = int | tuple[int, int]
"""An element's number, or a point: pixels from the left and from the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action, understood."""

    verb: str
    """`click`, `double_click`, `triple_click`, `hover`, `type`, `select`, `press`, `scroll`,
    `drag` or `wait`."""
    place: Place | None = None
    """What it is done to; for `scroll`, None is the page."""
    to: tuple[int, int] | int | None = None
    """Where a `drag` ends."""
    by: tuple[int, int] | None = None
    """How far a `drag` goes, in pixels to the right and down."""
    text: str = ""
    """What is typed or selected, the key in Playwright's words, or `up` or `down`."""


def parse(written: str) -> Action | str:
    """The action that `written` stands for, or why it is none, in words."""
    if len(written) > _MAX_CHARACTERS:
        return f"an action has at most {_MAX_CHARACTERS} characters, this one has {len(written)}"
    verb, _, rest = written.strip().partition(" ")
    rest = rest.strip()
    match verb.lower():
        case "click" | "double_click" | "triple_click" | "hover":
            place = _place(rest)
            if place is None:
                return f"`{verb.lower()}` needs the number of an element, or a point such as 80,120"
            return Action(verb=verb.lower(), place=place)
        case "type" | "select":
            return _with_text(verb.lower(), rest)
        case "press":
            key = key_combination(rest)
            return "that key cannot be pressed" if key is None else Action(verb="press", text=key)
        case "scroll":
            return _scroll(rest.lower().split())
        case "drag":
            return _drag(rest.lower().split())
        case "wait" if not rest:
            return Action(verb="wait")
        case _:
            return "that is no action"


def _with_text(verb: str, rest: str) -> Action | str:
    number, _, quoted = rest.partition(" ")
    place, text = _number(number), _unquoted(quoted.strip())
    if place is None or text is None:
        return f'`{verb}` needs the number of an element and a text, such as `{verb} 3 "abc"`'
    return Action(verb=verb, place=place, text=text)


def _scroll(words: list[str]) -> Action | str:
    *where, direction = words or [""]
    place = _number(where[0]) if len(where) == 1 else None
    if direction not in ("up", "down") or len(where) > 1 or (where and place is None):
        return "`scroll` needs up or down, after the number of an element if one is to be scrolled"
    return Action(verb="scroll", place=place, text=direction)


def _drag(words: list[str]) -> Action | str:
    start = _place(words[0]) if len(words) == 3 else None
    if start is not None and words[1] == "to" and (to := _place(words[2])) is not None:
        return Action(verb="drag", place=start, to=to)
    if start is not None and words[1] == "by" and (by := _point(words[2])) is not None:
        return Action(verb="drag", place=start, by=by)
    return "`drag` needs two places, such as `drag 3 to 5`, or a way, such as `drag 3 by 20,-5`"


def _place(word: str) -> Place | None:
    point = _point(word)
    if point is not None:
        return point if min(point) >= 0 else None
    return _number(word)


def _number(word: str) -> int | None:
    word = word.removeprefix("[").removesuffix("]")
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 7 else None


def _point(word: str) -> tuple[int, int] | None:
    across, comma, down = word.partition(",")
    numbers = [_signed(across.strip()), _signed(down.strip())]
    if not comma or numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def _signed(word: str) -> int | None:
    number = _number(word.removeprefix("-")) if not word.startswith("--[") else None
    if number is None or number > _MAX_PIXEL:
        return None
    return -number if word.startswith("-") else number


def _unquoted(text: str) -> str | None:
    """The text between quotes, read as JSON; None if it is not quoted."""
    if not text.startswith('"'):
        return None
    try:
        return cast("str", json.loads(text, strict=False))
    except json.JSONDecodeError:
        return None
