"""Hand-written ways to solve the plainer pages of MiniWoB++, from what the agent sees alone.

Each takes the instruction and the lines of the page and returns the next action, or None. A page
without a way has no expert.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from PIL import ImageColor

__all__ = ["SOLVED", "advice"]


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    """0 for text between elements."""
    tag: str
    text: str
    about: str
    """What else the line says, as it stands there."""


def advice(name: str, utterance: str, tree: str) -> str | None:
    """The next action on the page `name`; None if there is no way written for it, or it is lost."""
    solve = SOLVED.get(name)
    return None if solve is None else solve(utterance, [_line(line) for line in tree.split("\n")])


def _line(written: str) -> _Line:
    rest, number, tag = written.strip(), 0, ""
    if rest.startswith("["):
        inside, _, rest = rest[1:].partition("] ")
        number = int(inside)
        tag, _, rest = rest.partition(" ")
    text = ""
    if rest.startswith('"'):
        text, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].strip()
    return _Line(number, tag, text, rest)


# Pieces


def _quoted(utterance: str) -> list[str]:
    return utterance.split('"')[1::2]


def _between(utterance: str, start: str, end: str) -> str:
    return utterance.partition(start)[2].partition(end)[0]


def _number_in(text: str) -> int | None:
    digits = "".join(character for character in text if character.isdecimal())
    return int(digits) if digits else None


def _click(line: _Line | None) -> str | None:
    return None if line is None else f"click {line.number}"


def _named(lines: Sequence[_Line], text: str) -> _Line | None:
    """The first element with this text."""
    return next((line for line in lines if line.number and line.text == text), None)


def _fields(lines: Sequence[_Line]) -> list[_Line]:
    """Where one can type."""
    inputs = [line for line in lines if line.tag == "input" and "disabled" not in line.about]
    return [line for line in inputs if "type=checkbox" not in line.about + "type=radio"]


def _value(line: _Line) -> str:
    """What a field holds."""
    _, found, rest = line.about.partition("value=")
    return str(json.JSONDecoder().raw_decode(rest)[0]) if found else ""


def _fill(lines: Sequence[_Line], texts: Sequence[str]) -> str | None:
    """Type `texts` into the fields, from the first on, then press the last button."""
    for field, text in zip(_fields(lines), texts, strict=False):
        if _value(field) != text:
            return f"type {field.number} {json.dumps(text)}"
    return _click(_buttons(lines)[-1])


def _buttons(lines: Sequence[_Line]) -> list[_Line]:
    return [line for line in lines if line.tag == "button"]


# Pages


def _click_target(utterance: str, lines: Sequence[_Line]) -> str | None:
    target = _quoted(utterance) or [utterance.rstrip(".").split(" ")[-1]]
    return _click(_named(lines, target[0]))


def _click_first_button(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    return _click(_buttons(lines)[0])


def _click_dialog(utterance: str, lines: Sequence[_Line]) -> str | None:
    target = _quoted(utterance)[0]
    return _click(_buttons(lines)[0] if target == "x" else _named(lines, target))


def _click_in_order(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    first, second = sorted(_buttons(lines), key=lambda line: line.text)  # ONE, TWO
    return _click(second if "focused" in first.about else first)


def _click_tab(utterance: str, lines: Sequence[_Line]) -> str | None:
    return _click(_named(lines, f"Tab #{_number_in(utterance)}"))


def _look_behind(tag: str) -> Callable[[str, Sequence[_Line]], str | None]:
    """Open one after the other of what has this tag, until the target is seen."""

    def solve(utterance: str, lines: Sequence[_Line]) -> str | None:
        target = next(
            (line for line in lines if line.tag == "span" and line.text == _quoted(utterance)[0]),
            None,
        )
        if target is not None:
            return _click(target)
        opened, doors = -1, [line for line in lines if line.tag == tag]
        for position, line in enumerate(lines):
            if "expanded" in line.about and "selected" in line.about:
                at = line if line.tag == tag else lines[position + 1]
                opened = doors.index(at)
        return _click(doors[(opened + 1) % len(doors)])

    return solve


def _click_section(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    header = next(line for line in lines if line.tag == "h3")
    return _click(_buttons(lines)[-1] if "expanded" in header.about else header)


def _tick(utterance: str, lines: Sequence[_Line]) -> str | None:
    wanted = _between(utterance, "Select ", " and click Submit").split(", ")
    for box, label in pairwise(lines):
        if box.tag == "input" and label.text in wanted and "unchecked" in box.about:
            return _click(box)
    return _click(_buttons(lines)[-1])


def _choose(utterance: str, lines: Sequence[_Line]) -> str | None:
    wanted = _between(utterance, "Select ", " from the ").split(", ")
    shown = next(line for line in lines if line.tag == "select")
    selected = shown.about.partition(" options: ")[0]
    for option in wanted:
        if json.dumps(option, ensure_ascii=False) not in selected:
            return f"select {shown.number} {json.dumps(option, ensure_ascii=False)}"
    return _click(_buttons(lines)[-1])


def _type_quoted(utterance: str, lines: Sequence[_Line]) -> str | None:
    return _fill(lines, _quoted(utterance))


def _type_twice(utterance: str, lines: Sequence[_Line]) -> str | None:
    return _fill(lines, _quoted(utterance) * 2)


def _type_in_case(utterance: str, lines: Sequence[_Line]) -> str | None:
    text = _quoted(utterance)[0]
    return _fill(lines, [text.upper() if "upper case" in utterance else text.lower()])


def _focus(utterance: str, lines: Sequence[_Line]) -> str | None:
    return _click(_fields(lines)[(_number_in(utterance) or 1) - 1])


def _calculate(utterance: str, lines: Sequence[_Line]) -> str | None:
    """`8 + 8 =` or `8 - x = 85`, with + and - and, in the former, x as times."""
    del utterance
    left, operator, right, _, *result = lines[0].text.split(" ")
    if not result:
        a, b = int(left), int(right)
        return _fill(lines, [str({"+": a + b, "-": a - b}.get(operator, a * b))])
    total, sign = int(result[0]), 1 if operator == "+" else -1
    if right == "x":
        return _fill(lines, [str(sign * (total - int(left)))])
    return _fill(lines, [str(total - sign * int(right))])


def _click_color(utterance: str, lines: Sequence[_Line]) -> str | None:
    red, green, blue, *_ = ImageColor.getrgb(_between(utterance, "Click on the ", " colored box"))
    color = f"color=rgb({red}, {green}, {blue})"
    return _click(next((line for line in lines if color in line.about), None))


def _click_widget(utterance: str, lines: Sequence[_Line]) -> str | None:
    kind = _quoted(utterance)[0]
    for line in lines:
        if line.tag == kind or (line.tag == "input" and f"type={kind} " in f"{line.about} "):
            return _click(line)
    return None


def _read_table(utterance: str, lines: Sequence[_Line]) -> str | None:
    label = _between(utterance, "Enter the value of ", " into the")
    cells = [line.text for line in lines if line.tag == "td"]
    return _fill(lines, [cells[cells.index(label) + 1]])


def _copy(utterance: str, lines: Sequence[_Line]) -> str | None:
    areas = [line for line in lines if line.tag == "textarea"]
    return _fill(lines, [_value(areas[(_number_in(utterance) or 1) - 1])])


def _last_word(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    area = next(line for line in lines if line.tag == "textarea")
    return _fill(lines, [_value(area).split()[-1].rstrip(".,")])


def _word(utterance: str, lines: Sequence[_Line]) -> str | None:
    words = lines[0].text.split()
    return _fill(lines, [words[(_number_in(utterance) or 1) - 1].rstrip(".,")])


def _browse_tree(utterance: str, lines: Sequence[_Line]) -> str | None:
    target = _named(lines, _quoted(utterance)[0])
    if target is not None:
        return _click(target)
    return _click(next((line for line in lines if "expandable-hitarea" in line.about), None))


def _grid(utterance: str, lines: Sequence[_Line]) -> str | None:
    across, up = (int(word) for word in _between(utterance, "(", ")").split(","))
    circles = [line for line in lines if line.tag == "circle"]
    return _click(circles[(across + 2) * 5 + (2 - up)])


def _identify(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    shape = lines[1]
    text = "Number" if shape.text.isdecimal() else "Letter"
    names = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
    return _click(_named(lines, names.get(shape.tag, text)))


def _count_blocks(utterance: str, lines: Sequence[_Line]) -> str | None:
    del utterance
    return _fill(lines, [str(sum("addition-block" in line.about for line in lines))])


def _click_icon(icon: str) -> Callable[[str, Sequence[_Line]], str | None]:
    def solve(utterance: str, lines: Sequence[_Line]) -> str | None:
        sender = _named(lines, _between(utterance, "email by ", " and "))
        after = lines[lines.index(sender) :] if sender is not None else ()
        return _click(next((line for line in after if f'class="{icon}"' in line.about), None))

    return solve


def _phone_book(utterance: str, lines: Sequence[_Line]) -> str | None:
    name = _between(utterance, "Find ", " in the contact book")
    if _named(lines, name) is None:
        return _click(_named(lines, ">"))
    label = utterance.rstrip(".").split(" ")[-1].replace("number", "phone").capitalize()
    entry = _named(lines, f"{label}:")
    return None if entry is None else _click(lines[lines.index(entry) + 1])


def _enter_date(utterance: str, lines: Sequence[_Line]) -> str | None:
    month, day, year = _between(utterance, "Enter ", " as the date").split("/")
    if _value(_fields(lines)[0]) == f"{year}-{month}-{day}":
        return _click(_buttons(lines)[-1])
    return f'type {_fields(lines)[0].number} "{month}/{day}/{year}"'


SOLVED: dict[str, Callable[[str, Sequence[_Line]], str | None]] = {
    "choose-list": _choose,
    "click-button": _click_target,
    "click-button-sequence": _click_in_order,
    "click-checkboxes": _tick,
    "click-checkboxes-large": _tick,
    "click-checkboxes-transfer": _tick,
    "click-collapsible": _click_section,
    "click-collapsible-2": _look_behind("h3"),
    "click-collapsible-2-nodelay": _look_behind("h3"),
    "click-collapsible-nodelay": _click_section,
    "click-color": _click_color,
    "click-dialog": _click_first_button,
    "click-dialog-2": _click_dialog,
    "click-link": _click_target,
    "click-option": _tick,
    "click-scroll-list": _choose,
    "click-tab": _click_tab,
    "click-tab-2": _look_behind("a"),
    "click-tab-2-easy": _look_behind("a"),
    "click-tab-2-hard": _look_behind("a"),
    "click-tab-2-medium": _look_behind("a"),
    "click-test": _click_first_button,
    "click-test-2": _click_target,
    "click-test-transfer": _click_target,
    "click-widget": _click_widget,
    "copy-paste": _copy,
    "copy-paste-2": _copy,
    "email-inbox-delete": _click_icon("trash"),
    "email-inbox-important": _click_icon("star"),
    "enter-date": _enter_date,
    "enter-password": _type_twice,
    "enter-text": _type_quoted,
    "enter-text-2": _type_in_case,
    "enter-text-dynamic": _type_quoted,
    "find-word": _word,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "grid-coordinate": _grid,
    "identify-shape": _identify,
    "login-user": _type_quoted,
    "navigate-tree": _browse_tree,
    "phone-book": _phone_book,
    "read-table": _read_table,
    "scroll-text": _last_word,
    "simple-algebra": _calculate,
    "simple-arithmetic": _calculate,
    "unicode-test": _click_target,
    "visual-addition": _count_blocks,
}
"""Page to its way."""
