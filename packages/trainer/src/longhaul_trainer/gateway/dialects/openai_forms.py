"""Tools of OpenAI's responses that are no plain functions, and the items of their calls.

The policy knows functions alone. So each of these is offered as one, and a call of it is written
in the form that the client expects:

    tool                                    offered as               item of a call
    {"type": "custom", "name": "f"}         f(input)                 custom_tool_call
    {"type": "local_shell"}                 local_shell(command, …)  local_shell_call
    {"type": "shell"}, on the client's side shell(commands, …)       shell_call
    {"type": "apply_patch"}                 apply_patch(type, …)     apply_patch_call
    {"type": "namespace", "name": "n"}      n__f(…) of each tool f   that of f, with its namespace
    {"type": "tool_search"}, on the
        client's side                       tool_search(…)           tool_search_call

The last one finds deferred tools. Its result, `tool_search_output`, has their definitions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from longhaul_core.types import Tool, ToolCall
from longhaul_trainer.gateway.dialects.fields import Fields, json_text
from longhaul_trainer.gateway.dialects.openai_tools import function_tool

__all__ = ["CALLS", "FUNCTION", "SEARCH", "Offer", "ToolForm", "offered_tools", "read_call"]

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}


class _Input(msgspec.Struct, forbid_unknown_fields=True):
    input: str


class _Exec(msgspec.Struct):
    command: list[str]


class _Commands(msgspec.Struct):
    commands: list[str]


class _Delete(msgspec.Struct, tag_field="type", tag="delete_file"):
    path: str


class _Create(msgspec.Struct, tag_field="type", tag="create_file"):
    path: str
    diff: str


class _Update(msgspec.Struct, tag_field="type", tag="update_file"):
    path: str
    diff: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForm:
    """How the calls of a tool are written."""

    item: str
    """Type of the item of a call."""
    name: str = ""
    """As the client knows it."""
    namespace: str = ""
    """Empty for a tool that is in none."""
    holder: str = ""
    """The item's field for the arguments."""
    shape: object = None
    """What the arguments must be decoded to; None for a function, whose arguments are any text."""
    fixed: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the holder has beside the arguments."""
    beside: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the item has beside the holder."""
    holds_text: bool = False
    """Whether the holder takes arguments that are not the tool's, as a text."""

    @property
    def is_known_late(self) -> bool:
        """Whether the arguments say what a call's item is."""
        return self.shape is not None

    def written(self, arguments: str) -> dict[str, object]:
        """The item's own fields for a call.

        A call whose arguments are not the tool's is one of a function, unless the tool's own item
        takes them too: so the program sees what the model wrote.
        """
        named = {"namespace": self.namespace} if self.namespace else {}
        head: dict[str, object] = {"type": FUNCTION.item, "name": self.name, **named}
        called = {**head, "arguments": arguments}
        if self.shape is None:
            return called
        try:
            msgspec.json.decode(arguments, type=self.shape)
            given = msgspec.json.decode(arguments, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError):
            own = {"type": self.item, **self.beside, self.holder: arguments}
            return own if self.holds_text else called
        if self.holder == "input":
            return {**head, "type": self.item, **given}
        held = {self.holder: {**self.fixed, **given}}
        return {"type": self.item, "status": "completed", **self.beside, **held}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A function that a reply may call."""

    tool: Tool
    form: ToolForm
    """Of its calls."""
    is_deferred: bool = False
    """Whether the client says that the model is to search for it first."""


def _function(
    name: str, description: str, properties: Mapping[str, object], *, needed: list[str]
) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": needed}
    return Tool(name=name, description=description, parameters=json_text(parameters, "tools"))


FUNCTION = ToolForm(item="function_call")
_CUSTOM = ToolForm(item="custom_tool_call", holder="input", shape=_Input)
SEARCH = ToolForm(
    item="tool_search_call",
    name="tool_search",
    holder="arguments",
    shape=dict[str, object],
    beside={"execution": "client"},
    holds_text=True,  # Codex answers that nothing was found; a function's call it aborts
)
_OWN: Mapping[str, tuple[Tool, ToolForm]] = {
    "local_shell": (
        _function(
            "local_shell",
            "Run a program with its arguments.",
            {"command": _TEXTS, "working_directory": _TEXT, "timeout_ms": {"type": "integer"}},
            needed=["command"],
        ),
        ToolForm(
            item="local_shell_call",
            name="local_shell",
            holder="action",
            shape=_Exec,
            fixed={"type": "exec", "env": {}},
        ),
    ),
    "shell": (
        _function(
            "shell",
            "Run commands in a shell.",
            {"commands": _TEXTS, "timeout_ms": {"type": "integer"}},
            needed=["commands"],
        ),
        ToolForm(item="shell_call", name="shell", holder="action", shape=_Commands),
    ),
    "apply_patch": (
        _function(
            "apply_patch",
            "Create, update or delete a file. Each line of a diff begins with a space, + or -.",
            {
                "type": {"enum": ["create_file", "update_file", "delete_file"]},
                "path": _TEXT,
                "diff": _TEXT,
            },
            needed=["type", "path"],
        ),
        ToolForm(
            item="apply_patch_call",
            name="apply_patch",
            holder="operation",
            shape=_Delete | _Create | _Update,
        ),
    ),
}
"""Tools that have one name and are known by their type."""
_OF_ITEM = {form.item: form for _, form in _OWN.values()}
CALLS = (FUNCTION.item, _CUSTOM.item, *_OF_ITEM)
"""Types of items that are calls; their results' have `_output` behind it. `SEARCH` is apart."""


def offered_tools(tools: Iterable[Fields]) -> list[Offer]:
    """The functions that a reply may call.

    Tools that the vendor runs are left out, and the grammars of custom tools, to which no reply is
    held.
    """
    found: list[Offer] = []
    for tool in tools:
        kind = tool.needed_text("type")
        environment = tool.inner("environment")
        if kind == "namespace":
            namespace = tool.needed_text("name")
            found += [
                replace(
                    offer,
                    tool=replace(offer.tool, name=_within(namespace, offer.tool.name)),
                    form=replace(offer.form, namespace=namespace),
                )
                for offer in offered_tools(tool.objects("tools"))
            ]
        elif kind in ("function", "custom"):
            offered = function_tool(tool) if kind == "function" else _custom_tool(tool)
            form = replace(FUNCTION if kind == "function" else _CUSTOM, name=offered.name)
            is_deferred = tool.flag("defer_loading") or False
            found.append(Offer(tool=offered, form=form, is_deferred=is_deferred))
        elif kind == "tool_search" and tool.get("execution") == "client":
            named = Fields({**tool.values, "name": SEARCH.name}, place=tool.here)
            found.append(Offer(tool=function_tool(named), form=SEARCH))
        elif kind in _OWN and (environment is None or environment.get("type") == "local"):
            offered, form = _OWN[kind]
            found.append(Offer(tool=offered, form=form))
        else:
            tool.leave_out(f"tools.{kind}")
    return found


def read_call(item: Fields) -> ToolCall | None:
    """The call of an item that a client sends back; None for an item that is no call."""
    kind = item.get("type")
    if kind == FUNCTION.item:
        name, arguments = item.needed_text("name"), item.text("arguments") or ""
    elif kind == _CUSTOM.item:
        name = item.needed_text("name")
        arguments = json_text({"input": item.text("input") or ""}, item.here)
    elif kind == SEARCH.item and item.get("execution") != "server":
        name, given = SEARCH.name, item.get(SEARCH.holder)
        if not isinstance(given, str):
            given = json_text(given, item.here) if given is not None else "{}"
        arguments = given
    elif isinstance(kind, str) and kind in _OF_ITEM:
        form = _OF_ITEM[kind]
        name, held = form.name, item.needed_inner(form.holder)
        given = {
            key: value
            for key, value in held.values.items()
            if value is not None and form.fixed.get(key) != value
        }
        arguments = json_text(given, held.here)
    else:
        return None
    namespace = item.text("namespace")
    return ToolCall(
        id=item.needed_text("call_id"),
        name=_within(namespace, name) if namespace else name,
        arguments=arguments,
    )


def _custom_tool(tool: Fields) -> Tool:
    """A custom tool, whose input is a text, as a function."""
    name, text = tool.needed_text("name"), dict[str, object](_TEXT)
    format = tool.inner("format")
    if format is not None and (grammar := format.text("definition")):
        text["description"] = f"By this grammar ({format.text('syntax')}):\n{grammar}"
        tool.leave_out(f"tools.{name}.format")
    return _function(name, tool.text("description") or "", {"input": text}, needed=["input"])


def _within(namespace: str, name: str) -> str:
    """A name that a template can show, of a tool in a namespace."""
    return f"{namespace.removesuffix('__')}__{name}"
