"""Dataclasses whose fields are described, in the API's document, by the strings under them.

pydantic can read such strings, but it does so for each use of a class in an address, from the
class's whole file: a third of what starting the API took. Here a file is read once, and only when a
document is made.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

__all__ = ["Described"]


class Described:
    """Base of a dataclass whose fields' strings are their descriptions."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        schema: Any,  # noqa: ANN401  pydantic's, which the core does not name
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        found = handler(schema)
        properties = handler.resolve_ref_schema(found)["properties"]
        strings = _strings_under_fields(inspect.getfile(cls)).get(cls.__name__, {})
        for name, text in strings.items():
            properties[name].setdefault("description", text)
        return found


@cache
def _strings_under_fields(file: str) -> dict[str, dict[str, str]]:
    """By class of a module, the string under each field that has one."""
    module = ast.parse("".join(linecache.getlines(file)))
    return {
        each.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(each.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for each in module.body
        if isinstance(each, ast.ClassDef)
    }
