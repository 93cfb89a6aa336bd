"""Types of settings that name a part of a run, and of the free tables that such a part gets."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from longhaul_core.components import is_component, known_components

Scalar = bool | int | float | str
Option = Scalar | list[Scalar]
"""What a free table may hold, such as `algorithm.options`."""
EnvironmentOption = Option | dict[str, Scalar]
"""What `environment.options` may hold: further tables too, such as addresses by name."""


@dataclass(frozen=True, slots=True)
class BuiltInOrOwn:
    """Annotation of a text setting: a built-in name, or `package.module:name` of one's own.

    Only the form is checked here. What a path names is imported by
    `preflight.description_check`, so that a configuration is read without user code.
    """

    built_in: Mapping[str, str]
    """Names, each with what it means in a few words; empty where the setting's own description
    says it."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: str | None) -> str | None:
        if value is None or is_component(value, self.built_in):
            return value
        raise PydanticCustomError(
            "component", "must be {known}", {"known": known_components(self.built_in)}
        )
