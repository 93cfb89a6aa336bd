"""WebArena's actions as its authors write them, read bracket by bracket."""

from dataclasses import dataclass

from longhaul_envs.browser.keys import key_combination

__all__ = ["Action", "parse"]

_MAX_CHARACTERS = 10_000
_NEEDS_NOTHING = frozenset(("new_tab", "close_tab", "go_back", "go_forward"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action, understood."""

    verb: str
    number: int = 0
    """Of an element, or of a tab from 0 on."""
    text: str = ""
    """What is typed, pressed, opened or answered; `up` or `down`."""
    presses_enter: bool = False
    """After what is typed."""


def parse(written: str) -> Action | str:
    """The action that `written` stands for, or why it is none, in words."""
    if len(written) > _MAX_CHARACTERS:
        return f"an action has at most {_MAX_CHARACTERS} characters, this one has {len(written)}"
    verb, bracket, rest = written.strip().partition("[")
    words = verb.split()
    verb, rest = (words[0] if words else ""), bracket + rest
    if len(words) == 2 and verb == "scroll" and not bracket:
        words, rest = words[:1], f"[{words[1]}]"
    if len(words) > 1:
        return "that is no action"
    return Action(verb=verb) if verb in _NEEDS_NOTHING else _with_arguments(verb, rest)


def _with_arguments(verb: str, rest: str) -> Action | str:
    match verb:
        case "click" | "hover" | "tab_focus":
            number = _number(_inside(rest))
            if number is None:
                return f"`{verb}` needs a number in brackets, such as `{verb} [3]`"
            return Action(verb=verb, number=number)
        case "type":
            return _type(rest)
        case "press":
            key = key_combination(_inside(rest) or "")
            return "that key cannot be pressed" if key is None else Action(verb=verb, text=key)
        case "scroll":
            direction = (_inside(rest) or "").removeprefix("direction=").strip()
            if direction not in ("up", "down"):
                return "`scroll` needs a direction, such as `scroll [down]`"
            return Action(verb=verb, text=direction)
        case "goto":
            address = (_inside(rest) or "").strip()
            return Action(verb=verb, text=address) if address else "`goto` needs an address"
        case "stop":
            return Action(verb=verb, text=_inside(rest) or "")
        case _:
            return "that is no action"


def _type(rest: str) -> Action | str:
    """`[3] [text]`, then `[0]` for no Enter afterwards; the text may hold brackets itself."""
    number, _, content = rest.partition("]")
    element, content = _number(number.removeprefix("[")), content.strip()
    flag = content[-3:] if content[-3:] in ("[0]", "[1]") and len(content) > 3 else ""
    text = _inside(content.removesuffix(flag).strip())
    if element is None or not text:
        return "`type` needs a number and a text in brackets, such as `type [3] [abc] [1]`"
    return Action(verb="type", number=element, text=text, presses_enter=flag != "[0]")


def _inside(text: str) -> str | None:
    """What is between the first bracket and the last one."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == "[" and text[-1] == "]" else None


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
