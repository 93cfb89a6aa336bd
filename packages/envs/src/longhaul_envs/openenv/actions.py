"""A model's text as an action of an OpenEnv server, by the schema that the server publishes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from longhaul_envs.served import field_of, items_of

__all__ = ["ActionForm", "NoAction"]


class NoAction(ValueError):
    """The text is no action of the server; the message says what it would have to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """How text becomes an action."""

    field: str
    """Takes the text as it is; "" if the text is a JSON object."""
    fields: tuple[str, ...]
    """Of the server's action, those it needs first."""

    @classmethod
    def of(cls, schema: object, *, chosen: str) -> "ActionForm":
        """The form of a server's actions.

        Args:
            schema: JSON schema of its action.
            chosen: Field that the user named for the text, or "".

        Raises:
            ValueError: If there is no such field.
            TypeError: If `schema` describes no object.
        """
        properties = field_of(schema, "properties")
        if not isinstance(properties, Mapping):
            raise TypeError(f"the schema of its action describes no object: {str(schema)[:300]}")
        kinds = {
            name: _kinds(kind)
            for name, kind in cast("Mapping[str, object]", properties).items()
            if name != "metadata"  # which every action of OpenEnv has
        }
        first = tuple(str(one) for one in items_of(field_of(schema, "required")))
        names = (*first, *(name for name in kinds if name not in first))
        if chosen:
            if "string" not in kinds.get(chosen, set()):
                raise ValueError(
                    f"its action has no field of text {chosen!r}; it has {', '.join(names)}"
                )
            return cls(field=chosen, fields=names)
        if len(names) == 1 and "string" in kinds[names[0]]:
            return cls(field=names[0], fields=names)
        return cls(field="", fields=names)

    @property
    def words(self) -> str:
        """What an action looks like."""
        if self.field:
            return f"text, the server's `{self.field}`"
        inside = ", ".join(f'"{name}": …' for name in self.fields)
        return f"a JSON object `{{{inside}}}`"

    def payload(self, action: str) -> dict[str, object]:
        """What is sent for `action`.

        Raises:
            NoAction: If it must be a JSON object, and is none.
        """
        if self.field:
            return {self.field: action}
        try:
            value = json.loads(action)
        except (ValueError, RecursionError) as error:
            raise NoAction(f"The action must be {self.words}: {error}.") from error
        if not isinstance(value, dict):
            raise NoAction(f"The action must be {self.words}.")
        return cast("dict[str, object]", value)


def _kinds(schema: object) -> set[str]:
    """The JSON types that a field may have."""
    kind = field_of(schema, "type")
    found = {kind} if isinstance(kind, str) else set[str]()
    for option in items_of(field_of(schema, "anyOf")):
        found |= _kinds(option)
    return found
