"""The tools of an ORS environment, and a model's text as a call of one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from longhaul_core.types import Tool
from longhaul_envs.served import field_of, items_of

__all__ = ["NoCall", "Tools"]


class NoCall(ValueError):
    """The text calls no tool; the message says what a call looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What an environment lets be called."""

    descriptions: Mapping[str, str]
    """By name, with the schema of the input, for the model."""
    listed: tuple[Tool, ...] = ()
    """The same for a chat template."""
    terminal: str = ""
    """Tool that ends the episode with whatever text is no call; "" if there is none."""
    terminal_field: str = ""
    """Of that tool's input, for the text; "" if it takes none."""

    @classmethod
    def of(cls, answer: object) -> "Tools":
        """The tools that a server lists.

        Raises:
            TypeError: If `answer` is no list of tools.
        """
        listed = field_of(answer, "tools")
        if listed is None:
            raise TypeError(f"no list of tools: {str(answer)[:300]}")
        terminal = field_of(answer, "terminal_tool")
        return cls(
            descriptions={
                str(field_of(tool, "name")): _described(tool) for tool in items_of(listed)
            },
            listed=tuple(_tool(tool) for tool in items_of(listed)),
            terminal=str(field_of(terminal, "name") or ""),
            terminal_field=str(field_of(terminal, "arg") or ""),
        )

    @property
    def words(self) -> str:
        """What an action looks like."""
        call = '`{"name": TOOL, "input": {…}}`'
        if not self.terminal:
            return call
        return f"{call}, or else text, which is the answer and ends the task"

    def call(self, action: str) -> tuple[str, Mapping[str, object]]:
        """Name and input of the tool that `action` calls.

        Raises:
            NoCall: If it is no call, and no tool takes plain text.
        """
        try:
            value = json.loads(action)
        except (ValueError, RecursionError):
            value = None
        name, given = field_of(value, "name"), field_of(value, "input")
        if given is None:
            given = field_of(value, "arguments")
        if isinstance(name, str) and isinstance(given, Mapping):
            return name, cast("Mapping[str, object]", given)
        if self.terminal:
            return self.terminal, {self.terminal_field: action} if self.terminal_field else {}
        raise NoCall(f"An action must be {self.words}. Tools: {', '.join(self.descriptions)}.")


def _tool(tool: object) -> Tool:
    schema: object = field_of(tool, "input_schema") or {"type": "object", "properties": {}}
    return Tool(
        name=str(field_of(tool, "name")),
        description=str(field_of(tool, "description") or ""),
        parameters=json.dumps(schema, ensure_ascii=False),
    )


def _described(tool: object) -> str:
    schema = field_of(tool, "input_schema")
    properties = field_of(schema, "properties")
    inside = json.dumps(properties, ensure_ascii=False) if properties else "{}"
    return f"{field_of(tool, 'name')}: {field_of(tool, 'description')} Input: {inside}"
