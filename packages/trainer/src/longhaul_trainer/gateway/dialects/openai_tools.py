"""Tools and the choice among them, in OpenAI's two forms: chat completions and responses."""

from collections.abc import Mapping, Sequence

from longhaul_core.types import Tool
from longhaul_trainer.gateway.dialects.fields import Fields, json_text, refusal

__all__ = ["chosen_tools", "function_tool", "read_tools"]


def read_tools(body: Fields) -> tuple[Tool, ...]:
    """The functions that a reply of chat completions may ask for; other tools are left out."""
    found: list[Tool] = []
    for tool in body.objects("tools"):
        if tool.get("type") == "function":
            found.append(function_tool(tool.needed_inner("function")))
        else:
            body.leave_out(f"tools.{tool.needed_text('type')}")
    return tuple(found)


def function_tool(function: Fields) -> Tool:
    """A function as it is offered."""
    parameters = function.inner("parameters")
    return Tool(
        name=function.needed_text("name"),
        description=function.text("description") or "",
        parameters="{}" if parameters is None else json_text(parameters.values, parameters.here),
    )


def chosen_tools(
    body: Fields, tools: Sequence[Tool], *, nested: bool
) -> tuple[tuple[Tool, ...], Mapping[str, object]]:
    """The tools that `tool_choice` leaves, and what it demands beyond an offer.

    `none` offers no tools; `allowed_tools` offers some of them. What must be called is
    `tool_choice` among the altered settings, and at most one call is `parallel_tool_calls`. A tool
    of the vendor's own that must be called is left out.

    Raises:
        ApiError: It names a function that there is none of.
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
            choice = Fields.of(value, place=place, left_out=body.left_out)
    kind = choice.needed_text("type")
    if kind == "function":
        name = _name(choice, nested=nested)
        _check_named([name], tools, place)
        return tuple(tools), altered | {"tool_choice": {"name": name}}
    if kind != "allowed_tools":
        name = choice.text("name") or kind
        if any(tool.name == name for tool in tools):
            return tuple(tools), altered | {"tool_choice": {"name": name}}
        choice.leave_out(f"tool_choice.{kind}")
        return tuple(tools), altered
    allowed = choice.needed_inner("allowed_tools") if nested else choice
    names = [_name(tool, nested=nested) for tool in allowed.objects("tools")]
    _check_named(names, tools, place)
    if allowed.choice("mode", ("auto", "required")) == "required":
        altered["tool_choice"] = "required"
    return tuple(tool for tool in tools if tool.name in names), altered


def _name(tool: Fields, *, nested: bool) -> str:
    if nested:
        return tool.needed_inner("function").needed_text("name")
    return tool.text("name") or tool.needed_text("type")


def _needed(tools: Sequence[Tool], place: str) -> tuple[Tool, ...]:
    if not tools:
        raise refusal(place, "required", "'required' together with tools")
    return tuple(tools)


def _check_named(names: Sequence[str], tools: Sequence[Tool], place: str) -> None:
    there = [tool.name for tool in tools]
    for name in names:
        if name not in there:
            raise refusal(place, name, f"a tool of this request: {', '.join(there) or 'none'}")
