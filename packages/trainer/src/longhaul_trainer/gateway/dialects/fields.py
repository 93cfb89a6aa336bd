"""Fields of a JSON object, read by their types; what is wrong becomes an error for the client."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Self, TypeVar, cast

import msgspec

from longhaul_core.text import shortened
from longhaul_trainer.gateway.exchange import ApiError, ErrorKind

__all__ = ["Fields", "json_text", "object_of", "refusal", "shown"]

_SHOWN_CHARACTERS = 80
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_.\[\]-]")
T = TypeVar("T")


def shown(value: object) -> str:
    """A value of a body as an error names it: whole where it is short."""
    match value:
        case str():
            if len(value) <= _SHOWN_CHARACTERS:
                return repr(value)
            return f"{value[:_SHOWN_CHARACTERS]!r}… ({len(value):,} characters in all)"
        case dict():
            keys = ", ".join(str(key) for key in list(cast("dict[str, object]", value))[:8])
            return f"an object with {shortened(keys, _SHOWN_CHARACTERS) or 'no keys'}"
        case list():
            return f"a list of {len(cast('list[object]', value))}"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int() if abs(value) >= 10**20:
            return f"an integer of {value.bit_length():,} bits"
        case _:
            return str(value)


def refusal(
    place: str, value: object, understood: str, *, kind: ErrorKind = "invalid_request"
) -> ApiError:
    """The error that a field is refused with.

    Args:
        place: Where the field is, e.g. `messages[2].role`.
        value: What stands there.
        understood: What may stand there, after "understood is".
        kind: `unsupported` for what a vendor's server takes and this one does not.
    """
    return ApiError(kind, f"{place} is {shown(value)}; understood is {understood}", parameter=place)


def json_text(value: object, place: str) -> str:
    """A part of a body as JSON text, e.g. a tool's schema.

    Raises:
        ApiError: It cannot be written, such as a number that is not finite.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise refusal(place, value, f"JSON that can be written again ({error})") from error


def object_of(arguments: str) -> dict[str, object] | None:
    """Arguments of a tool call as the object that vendors have them as; None if they are none."""
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None


class Fields:
    """A JSON object of a body. A field that is null counts as one that is not there."""

    def __init__(
        self,
        values: Mapping[str, object],
        *,
        place: str = "",
        left_out: list[str] | None = None,
    ) -> None:
        """The object at `place` of the body; empty for the body itself."""
        self._values = values
        self._place = place
        self._asked: set[str] = set()
        self.left_out: list[str] = [] if left_out is None else left_out
        """What of the whole body is not served, for the answer to say so."""

    @classmethod
    def of(cls, value: object, *, place: str, left_out: list[str] | None = None) -> Self:
        """The object that stands at `place`.

        Raises:
            ApiError: Something else does.
        """
        if not isinstance(value, Mapping):
            raise refusal(place, value, "an object")
        return cls(cast("Mapping[str, object]", value), place=place, left_out=left_out)

    @property
    def values(self) -> Mapping[str, object]:
        """All of it, as it was sent."""
        return self._values

    @property
    def here(self) -> str:
        """Where the object is in the body."""
        return self._place or "the body"

    def place(self, name: str) -> str:
        """Where a field is in the body."""
        return f"{self._place}.{name}" if self._place else name

    def get(self, name: str) -> object | None:
        """The field as it is."""
        self._asked.add(name)
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        raise refusal(self.place(name), value, "a string")

    def needed_text(self, name: str) -> str:
        """A string that must be there, and not be empty."""
        value = self.text(name)
        if not value:
            raise refusal(self.place(name), value, "a string that is not empty")
        return value

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise refusal(self.place(name), value, "true or false")

    def number(self, name: str, *, at_least: float, at_most: float) -> float | None:
        """A finite number between two bounds, both included."""
        value = self.get(name)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not at_least <= value <= at_most  # so of a NaN
        ):
            raise refusal(self.place(name), value, f"a number from {at_least:,g} to {at_most:,g}")
        return float(value)

    def integer(self, name: str, *, at_least: int, at_most: int) -> int | None:
        """An integer between two bounds, both included; `40.0` is one."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not at_least <= value <= at_most
        ):
            raise refusal(self.place(name), value, f"an integer from {at_least:,} to {at_most:,}")
        return value

    def choice(self, name: str, understood: Collection[str]) -> str | None:
        """One of some words."""
        value = self.get(name)
        if value is None or (isinstance(value, str) and value in understood):
            return value
        raise refusal(self.place(name), value, " or ".join(repr(word) for word in understood))

    def inner(self, name: str) -> "Fields | None":
        """An object."""
        value = self.get(name)
        if value is None:
            return None
        return Fields.of(value, place=self.place(name), left_out=self.left_out)

    def needed_inner(self, name: str) -> "Fields":
        """An object that must be there."""
        return Fields.of(self.get(name), place=self.place(name), left_out=self.left_out)

    def items(self, name: str) -> list[object]:
        """A list; empty where there is none."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise refusal(self.place(name), value, "a list")
        return cast("list[object]", value)

    def objects(self, name: str) -> "list[Fields]":
        """A list of objects; empty where there is none."""
        return [
            Fields.of(item, place=f"{self.place(name)}[{place}]", left_out=self.left_out)
            for place, item in enumerate(self.items(name))
        ]

    def each(self, name: str, kind: type[T], understood: str) -> list[T]:
        """A list of values of one type; empty where there is none."""
        found: list[T] = []
        for place, item in enumerate(self.items(name)):
            if not isinstance(item, kind) or isinstance(item, bool):
                raise refusal(f"{self.place(name)}[{place}]", item, understood)
            found.append(item)
        return found

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Refuse fields that a vendor's server takes and this one cannot serve.

        Args:
            refused: What to do instead, by name. False and empty values pass: they ask for nothing.

        Raises:
            ApiError: `unsupported`.
        """
        for name, instead in refused.items():
            value = self.get(name)
            if value not in (None, False, "", [], {}):
                raise ApiError(
                    "unsupported",
                    f"{self.place(name)} is {shown(value)}, which the gateway does not serve: "
                    f"{instead}",
                    parameter=self.place(name),
                )

    def leave_out(self, name: str) -> None:
        """Note that something here is not served, by a name that a header can carry."""
        self.left_out.append(_as_name(name))

    def unread(self, ignored: Collection[str]) -> list[str]:
        """Names, as of `leave_out`, of fields that ask for something and that nobody has read here.

        It is asked last: a field that is read after it counts as unread.

        Args:
            ignored: What is read elsewhere, or of no consequence for a reply.
        """
        known = self._asked.union(ignored)
        return [
            _as_name(self.place(name))
            for name, value in self._values.items()
            if name not in known and value not in (None, False, "", [], {})
        ]

    def known(self, names: Collection[str]) -> None:
        """Refuse every field that is none of these.

        Raises:
            ApiError: `invalid_request`.
        """
        for name, value in self._values.items():
            if name not in names:
                raise ApiError(
                    "invalid_request",
                    f"{self.place(shortened(name, _SHOWN_CHARACTERS))} is {shown(value)}; there is "
                    f"no such field in {self.here}. Understood are {', '.join(sorted(names))}",
                    parameter=self.place(shortened(name, _SHOWN_CHARACTERS)),
                )

    def renamed(self, change: Callable[[str], str]) -> "Fields":
        """The same object with other names of its fields; deeper ones keep theirs."""
        return Fields(
            {change(name): value for name, value in self._values.items()},
            place=self._place,
            left_out=self.left_out,
        )


def _as_name(name: str) -> str:
    return _NOT_OF_A_NAME.sub("_", name)[:_SHOWN_CHARACTERS]
