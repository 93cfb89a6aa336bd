"""Tools that a prompt does not begin with: the model learns of them in a tool's result."""

from collections.abc import Iterable

from longhaul_core.types import Tool
from longhaul_trainer.gateway.dialects.fields import json_text

__all__ = ["told_of"]


def told_of(tools: Iterable[Tool], *, place: str) -> str:
    """Tools as the model reads them in a tool's result, each in a line of its own.

    Args:
        tools: That the result refers to.
        place: Where it does, for an error.
    """
    lines: list[str] = []
    for tool in tools:
        head = json_text({"description": tool.description, "name": tool.name}, place)
        lines.append(f'<function>{head[:-1]}, "parameters": {tool.parameters}}}</function>')
    return "\n".join(["<functions>", *lines, "</functions>"])
