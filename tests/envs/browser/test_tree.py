"""The accessibility tree as text."""

from typing import Any

from longhaul_envs.browser.tree import Box, ElementNumbers, tree_lines


def node(
    number: int, role: str, name: str = "", *children: int, **properties: object
) -> dict[str, Any]:
    """A node as Chromium's protocol has it; its id is that of its element too."""
    return {
        "nodeId": str(number),
        "backendDOMNodeId": number,
        "role": {"value": role},
        "name": {"value": name},
        "childIds": [str(child) for child in children],
        "properties": [{"name": key, "value": {"value": properties[key]}} for key in properties],
    }


def test_a_line_is_number_role_name_and_properties_set_in_below_its_parent() -> None:
    nodes = [
        node(1, "RootWebArea", "Shop", 2, 5),
        node(2, "generic", "", 3),
        node(3, "link", "A  'lamp'\n", 4, focusable=True),
        node(4, "StaticText", "lamp"),
        node(5, "checkbox", "", checked="true", required=False),
    ]
    assert tree_lines(nodes, number_of=lambda one: 10 * one, is_shown=lambda _: True) == [
        "[10] RootWebArea 'Shop'",
        "\t[30] link \"A 'lamp'\"",
        "\t[50] checkbox '' checked: true required: False",
    ]


def test_what_is_not_shown_leaves_its_place_to_its_children() -> None:
    nodes = [node(1, "RootWebArea", "", 2), node(2, "main", "all", 3), node(3, "button", "Buy")]
    lines = tree_lines(nodes, number_of=lambda one: one, is_shown=lambda one: one != 2)
    assert lines == ["[1] RootWebArea ''", "\t[3] button 'Buy'"]


def test_a_deep_tree_and_a_circle_of_names_end() -> None:
    depth = 5_000
    nodes = [node(number, "group", f"g{number}", number + 1) for number in range(1, depth)]
    assert len(tree_lines(nodes, number_of=lambda one: one, is_shown=lambda _: True)) == depth - 1


def test_a_box_is_in_view_if_most_of_it_is() -> None:
    assert Box(0, 0, 10, 10).is_in_view(100, 100)
    assert Box(0, -4, 10, 10).is_in_view(100, 100)
    assert not Box(0, -5, 10, 10).is_in_view(100, 100)
    assert not Box(0, 200, 10, 10).is_in_view(100, 100)
    assert not Box(0, 0, 10, 0).is_in_view(100, 100)


def test_an_element_keeps_its_number_and_belongs_to_its_page() -> None:
    numbers = ElementNumbers()
    assert [numbers.number_of(0, 77), numbers.number_of(1, 77), numbers.number_of(0, 77)] == [
        1,
        2,
        1,
    ]
    assert numbers.element(0, 1) == 77
    assert numbers.element(1, 1) is None
    assert numbers.element(0, 0) is None
    assert numbers.element(0, 3) is None
