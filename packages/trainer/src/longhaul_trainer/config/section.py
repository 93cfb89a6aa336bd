"""The rules every part of a run's description obeys.

Unknown keys are errors; settings that mean nothing beside the others are remarks. Nothing can be
changed after it was checked, types are strict (`"8"` is not 8, `true` is not 1), and the string
under a field is its documentation: it reaches the error list and the configuration guide.
"""

from collections.abc import Generator
from typing import NamedTuple, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator


class Conflicts(dict[type["Section"], list[str]]):
    """Collects what is wrong between fields, by section.

    Given to `model_validate` as its context, it keeps a contradiction of one section from hiding
    those of the others.
    """


class Remark(NamedTuple):
    """What is no error and may not be meant."""

    text: str
    field: str | None = None
    """Of the section: a setting that means nothing beside the others."""


class Section(BaseModel):
    """Immutable, closed to unknown keys, strict, documented by the strings under its fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    def conflicts(self) -> Generator[str]:
        """What is wrong between fields that are each right alone: names, values, arithmetic."""
        yield from ()

    def remarks(self) -> Generator[Remark]:
        """What is no error and may not be meant."""
        yield from ()

    def all_remarks(self) -> Generator[str]:
        """Those of this section and of the sections in it."""
        yield from (remark.text for remark in self.remarks())
        for name in type(self).model_fields:
            value: object = getattr(self, name)
            if isinstance(value, Section):
                yield from value.all_remarks()
            elif isinstance(value, tuple):
                for place, part in enumerate(cast("tuple[object, ...]", value)):
                    if isinstance(part, Section):
                        yield from (f"{name}[{place}]: {text}" for text in part.all_remarks())

    def as_read(self) -> Self:
        """With the defaults of settings that mean nothing beside the others."""
        read: dict[str, object] = {}
        for name in type(self).model_fields:
            value: object = getattr(self, name)
            if isinstance(value, Section):
                read[name] = value.as_read()
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                read[name] = tuple(p.as_read() if isinstance(p, Section) else p for p in parts)
        for remark in self.remarks():
            if remark.field is not None:
                field = type(self).model_fields[remark.field]
                read[remark.field] = field.get_default(call_default_factory=True)
        changed = {name: value for name, value in read.items() if value != getattr(self, name)}
        return self.model_copy(update=changed) if changed else self

    @model_validator(mode="after")
    def _parts_agree(self, info: ValidationInfo) -> Self:
        problems = list(self.as_read().conflicts())
        if isinstance(info.context, Conflicts):
            info.context.setdefault(type(self), []).extend(problems)
        elif problems:
            raise ValueError("\n".join(problems))
        return self
