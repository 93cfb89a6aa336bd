"""Tools and the choice among them, in OpenAI's two forms: chat completions and responses."""

from collections.abc import Mapping, Sequence

from longhaul_core.types import Tool
from longhaul_trainer.gateway.dialects.fields import Fields, json_text, refusal

__all__ = ["chosen_tools", "read_tools"]


def read_tools(body: Fields, *, nested: bool) -> tuple[Tool, ...]:
    """The functions that a reply may ask for; tools of the vendor's own are left out.

    Args:
        body: The request.
        nested: Whether a tool's name lies in an object `function`, as in chat completions.
    """
    found: list[Tool] = []
    for tool in body.objects("tools"):
        if tool.get("type") != "function":
            body.leave_out(f"tools.{tool.needed_text('type')}")
            continue
        function = tool.needed_inner("function") if nested else tool
        parameters = function.inner("parameters")
        found.append(
            Tool(
                name=function.needed_text("name"),
                description=function.text("description") or "",
                parameters="{}"
                if parameters is None
                else json_text(parameters.values, parameters.here),
            )
        )
    return tuple(found)


def chosen_tools(
    body: Fields, tools: Sequence[Tool], *, nested: bool
) -> tuple[tuple[Tool, ...], Mapping[str, object]]:
    """The tools that `tool_choice` leaves, and what it demands beyond an offer.

    `none` offers no tools; `allowed_tools` offers some of them. What must be called is
    `tool_choice` among the altered settings, and at most one call is `parallel_tool_calls`.

    Raises:
        ApiError: It names a tool that there is none of, or is of an unknown form.
    """
    altered: dict[str, object] = {}
    if tools and body.flag("parallel_tool_calls") is False:
        altered["parallel_tool_calls"] = False
    place = body.place("tool_choice")
    match body.get("tool_choice"):
        case None | "auto":
            return tuple(tools), altered
        case "none":
            return (), {}
        case "required":
            return _needed(tools, place), altered | {"tool_choice": "required"}
        case str() as word:
            raise refusal(place, word, "'auto', 'none', 'required' or an object")
        case value:
            choice = Fields.of(value, place=place)
    kind = choice.choice("type", ("function", "allowed_tools"))
    if kind == "function":
        name = (choice.needed_inner("function") if nested else choice).needed_text("name")
        _check_named([name], tools, place)
        return tuple(tools), altered | {"tool_choice": {"name": name}}
    if kind is None:
        raise refusal(choice.place("type"), None, "'function' or 'allowed_tools'")
    allowed = choice.needed_inner("allowed_tools") if nested else choice
    names = [
        (tool.needed_inner("function") if nested else tool).needed_text("name")
        for tool in allowed.objects("tools")
    ]
    _check_named(names, tools, place)
    if allowed.choice("mode", ("auto", "required")) == "required":
        altered["tool_choice"] = "required"
    return tuple(tool for tool in tools if tool.name in names), altered


def _needed(tools: Sequence[Tool], place: str) -> tuple[Tool, ...]:
    if not tools:
        raise refusal(place, "required", "'required' together with tools")
    return tuple(tools)


def _check_named(names: Sequence[str], tools: Sequence[Tool], place: str) -> None:
    there = [tool.name for tool in tools]
    for name in names:
        if name not in there:
            raise refusal(place, name, f"a tool of this request: {', '.join(there) or 'none'}")
