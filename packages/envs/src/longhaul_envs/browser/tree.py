"""A page's accessibility tree as text: a line for each element, with its number.

Read by Chromium's own protocol in two questions, whatever the size of the page: the tree, and the
boxes of what is laid out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

__all__ = ["Box", "ElementNumbers", "ask", "read_tree", "tree_lines"]

_Node = Mapping[str, Any]

_LEFT_OUT_PROPERTIES = frozenset(
    (
        *("focusable", "editable", "readonly", "level", "settable", "multiline", "invalid"),
        "url",
    )
)
_LEFT_OUT_ROLES = frozenset(("InlineTextBox", "LineBreak", "none"))
_ONLY_WITH_A_NAME = frozenset(
    (
        *("generic", "img", "image", "list", "listitem", "strong", "paragraph"),
        *("banner", "navigation", "form", "Section", "LabelText", "Legend"),
    )
)
_MIN_SHARE_IN_VIEW = 0.6
"""Of an element's area; as WebArena's authors have it."""


@dataclass(frozen=True, slots=True)
class Box:
    """Where something is in the window, in pixels."""

    left: float
    top: float
    width: float
    height: float

    def is_in_view(self, width: float, height: float) -> bool:
        """Whether most of it is within a window of this size."""
        area = self.width * self.height
        across = min(self.left + self.width, width) - max(self.left, 0)
        down = min(self.top + self.height, height) - max(self.top, 0)
        return area > 0 and max(across, 0) * max(down, 0) / area >= _MIN_SHARE_IN_VIEW


class ElementNumbers:
    """Gives each element of an episode a number when it is first shown, and knows it by that."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._elements: list[tuple[int, int]] = []

    def number_of(self, page: int, backend_id: int) -> int:
        """The number of a page's element, from 1 on."""
        element = (page, backend_id)
        if element not in self._numbers:
            self._elements.append(element)
            self._numbers[element] = len(self._elements)
        return self._numbers[element]

    def element(self, page: int, number: int) -> int | None:
        """Chromium's id of the element with this number; None if the page has shown none."""
        if not 1 <= number <= len(self._elements):
            return None
        of_page, backend_id = self._elements[number - 1]
        return backend_id if of_page == page else None


async def ask(session: "CDPSession", method: str, parameters: dict[str, Any]) -> Mapping[str, Any]:
    """What Chromium's own protocol answers."""
    untyped: Any = session
    return cast("Mapping[str, Any]", await untyped.send(method, parameters))


async def read_tree(
    session: "CDPSession", *, number_of: Callable[[int], int], view: tuple[float, float] | None
) -> list[str]:
    """The lines of the page's accessibility tree, without that of its frames.

    Args:
        session: Of the page.
        number_of: The number to show for an element, by Chromium's id of it.
        view: Width and height of the window, to leave out what is outside; None for all.
    """
    tree = await ask(session, "Accessibility.getFullAXTree", {})
    boxes = None if view is None else await _boxes(session)

    def is_shown(backend_id: int) -> bool:
        if boxes is None or view is None:
            return True
        return backend_id in boxes and boxes[backend_id].is_in_view(*view)

    return tree_lines(tree["nodes"], number_of=number_of, is_shown=is_shown)


def tree_lines(
    nodes: Sequence[_Node], *, number_of: Callable[[int], int], is_shown: Callable[[int], bool]
) -> list[str]:
    """The lines of an accessibility tree, as `Accessibility.getFullAXTree` has its nodes.

    What is ignored or not shown gives its place to its children. A text that its parent has as
    its name is left out.
    """
    if not nodes:
        return []
    by_id = {node["nodeId"]: node for node in nodes}
    lines: list[str] = []
    waiting: list[tuple[_Node, int, str]] = [(nodes[0], 0, "")]
    while waiting:
        node, depth, parent_name = waiting.pop()
        name = " ".join(str(node.get("name", {}).get("value", "")).split())
        is_root = node is nodes[0]
        if is_root or _is_worth_a_line(node, name, parent_name, is_shown):
            about = [f"{key}: {value}" for key, value in _properties(node)]
            number = number_of(node["backendDOMNodeId"])
            parts = [f"[{number}]", node["role"]["value"], repr(name), *about]
            lines.append("\t" * depth + " ".join(parts))
            depth, parent_name = depth + 1, name
        children = [by_id[child] for child in node.get("childIds", ()) if child in by_id]
        waiting.extend((child, depth, parent_name) for child in reversed(children))
    return lines


def _is_worth_a_line(
    node: _Node, name: str, parent_name: str, is_shown: Callable[[int], bool]
) -> bool:
    if node.get("ignored") or "backendDOMNodeId" not in node:
        return False
    role = node["role"]["value"]
    if role in _LEFT_OUT_ROLES or not is_shown(node["backendDOMNodeId"]):
        return False
    if role == "StaticText":
        return bool(name) and name not in parent_name
    return bool(name or _properties(node)) or role not in _ONLY_WITH_A_NAME


def _properties(node: _Node) -> list[tuple[str, object]]:
    found = [
        (entry["name"], entry["value"].get("value"))
        for entry in node.get("properties", ())
        if entry["name"] not in _LEFT_OUT_PROPERTIES
    ]
    value = node.get("value", {}).get("value")
    if value not in (None, ""):
        found.append(("value", repr(value)))
    return [(key, value) for key, value in found if value not in (None, "")]


async def _boxes(session: "CDPSession") -> dict[int, Box]:
    """Of everything that is laid out in the page itself, by Chromium's id."""
    snapshot = await ask(session, "DOMSnapshot.captureSnapshot", {"computedStyles": []})
    document = snapshot["documents"][0]
    ids = document["nodes"]["backendNodeId"]
    layout = document["layout"]
    across, down = document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0)
    return {
        ids[index]: Box(left - across, top - down, width, height)
        for index, (left, top, width, height) in zip(
            layout["nodeIndex"], layout["bounds"], strict=True
        )
    }
