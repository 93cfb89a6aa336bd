"""The rules every part of a run's description obeys.

Unknown keys are errors; settings that mean nothing beside the others are remarks. Nothing can be
changed after it was checked, types are strict (`"8"` is not 8, `true` is not 1), and the string
under a field is its documentation: it reaches the error list and the configuration guide.
"""

from collections.abc import Generator
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator


class Conflicts(dict[type["Section"], list[str]]):
    """Collects what is wrong between fields, by section.

    Given to `model_validate` as its context, it keeps a contradiction of one section from hiding
    those of the others.
    """


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

    def remarks(self) -> Generator[str]:
        """What is no error and may not be meant: settings that mean nothing beside the others."""
        yield from ()

    def all_remarks(self) -> Generator[str]:
        """Those of this section and of the sections in it."""
        yield from self.remarks()
        for name in type(self).model_fields:
            value: object = getattr(self, name)
            parts = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            for part in parts:
                if isinstance(part, Section):
                    yield from part.all_remarks()

    @model_validator(mode="after")
    def _parts_agree(self, info: ValidationInfo) -> Self:
        problems = list(self.conflicts())
        if isinstance(info.context, Conflicts):
            info.context.setdefault(type(self), []).extend(problems)
        elif problems:
            raise ValueError("\n".join(problems))
        return self
