"""The table of every field, as Markdown: what the configuration guide shows.

Written from the classes, so that the guide cannot drift from them; a test compares the two.
`python -m longhaul_trainer.config.reference docs/guides/configuration.md` writes it anew.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from longhaul_core.page_part import PagePart
from longhaul_trainer.config.calls import CallKind
from longhaul_trainer.config.component_settings import BuiltInOrOwn
from longhaul_trainer.config.episodes import EnvironmentConfig, MixedEnvironmentConfig
from longhaul_trainer.config.fields import UPSTREAMS, section_of
from longhaul_trainer.config.run import RunConfig
from longhaul_trainer.config.section import Section
from longhaul_trainer.config.toml import toml_value
from longhaul_trainer.config.upstreams import UpstreamConfig

PART = PagePart("fields")
"""Of the guide."""

TYPE_NAMES: dict[object, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
}


def reference_markdown() -> str:
    """One table for the keys at the top, then one for each section, in the classes' order."""
    plain = {
        name: field
        for name, field in RunConfig.model_fields.items()
        if section_of(field.annotation) is None
    }
    parts = ["### At the top\n\n" + _table(plain.items(), prefix="")]
    for name, field in RunConfig.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            parts += _sections(name, section)
    parts += _sections("[agent.calls]", CallKind)
    parts += _sections(f"{UPSTREAMS}.NAME", UpstreamConfig)
    parts.append(_environments())
    return "\n\n".join(parts)


def _sections(name: str, section: type[Section]) -> list[str]:
    """A section's table, and those of the sections in it."""
    about = " ".join((section.__doc__ or "").split())
    inner = {key: section_of(field.annotation) for key, field in section.model_fields.items()}
    plain = [(key, field) for key, field in section.model_fields.items() if inner[key] is None]
    found = [f"### `[{name}]`\n\n{about}\n\n" + _table(plain, f"{name.strip('[]')}.")]
    for key, within in inner.items():
        found += [] if within is None else _sections(f"{name}.{key}", within)
    return found


def _environments() -> str:
    """What an entry of `[[environments]]` has beyond the section of a single environment."""
    about = " ".join((MixedEnvironmentConfig.__doc__ or "").split())
    own = [
        (name, field)
        for name, field in MixedEnvironmentConfig.model_fields.items()
        if name not in EnvironmentConfig.model_fields and section_of(field.annotation) is None
    ]
    return f"### `[[environments]]`\n\n{about}\n\n" + _table(own, "environments.")


def _table(fields: Iterable[tuple[str, FieldInfo]], prefix: str) -> str:
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in fields:
        about = " ".join((field.description or "").split()).replace("|", "\\|")
        meanings = [f"`{key}`: {text}" for key, text in _named(field).items() if text]
        about = "<br>".join([about, *meanings])
        cells = (f"`{prefix}{name}`", _value(field), _default(field), about)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _value(field: FieldInfo) -> str:
    """Kind of value and its limits, e.g. `integer ≥ 2`."""
    members = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{member}`" for member in members)
    if any(isinstance(rule, BuiltInOrOwn) for rule in field.metadata):
        return ", ".join(f"`{name}`" for name in [*_named(field), "package.module:name"])
    kind = field.annotation if field.annotation in TYPE_NAMES else None
    if kind is None and members and members[0] in TYPE_NAMES and len(members) == 1:
        kind = members[0]
    if kind is None:
        return "table" if field.default == {} else "list"
    limits = [
        f"{sign} {limit:,g}" if isinstance(limit, float) else f"{sign} {limit}"
        for sign, limit in _limits(field)
    ]
    return " ".join([TYPE_NAMES[kind], ", ".join(limits)]).strip()


def _named(field: FieldInfo) -> Mapping[str, str]:
    """Built-in names that a field takes beside `package.module:name`, and what they mean."""
    rules = [rule for rule in field.metadata if isinstance(rule, BuiltInOrOwn)]
    return rules[0].built_in if rules else {}


def _limits(field: FieldInfo) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for rule in field.metadata:
        match rule:
            case annotated_types.Ge(ge=limit):
                found.append(("≥", limit))
            case annotated_types.Gt(gt=limit):
                found.append((">", limit))
            case annotated_types.Le(le=limit):
                found.append(("≤", limit))
            case annotated_types.Lt(lt=limit):
                found.append(("<", limit))
            case _:
                continue
    return found


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default is None:
        return "left out"
    return "`{}`" if field.default == {} else f"`{toml_value(field.default)}`"


if __name__ == "__main__":
    PART.write(Path(sys.argv[1]), reference_markdown())
