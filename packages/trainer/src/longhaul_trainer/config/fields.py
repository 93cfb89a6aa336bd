"""Every field of a run's description by its dotted name, for overrides, errors and docs."""

import difflib
from collections.abc import Mapping
from functools import cache
from typing import get_args

from pydantic.fields import FieldInfo

from longhaul_trainer.config.calls import CallKind
from longhaul_trainer.config.episodes import MixedEnvironmentConfig
from longhaul_trainer.config.run import RunConfig
from longhaul_trainer.config.section import Section
from longhaul_trainer.config.upstreams import UpstreamConfig

FREE_TABLES = frozenset(
    {
        "environment.options",
        "evolution.where",
        "algorithm.options",
        "loss.options",
        "loss.purposes",
        "model.chat_template_kwargs",
        "verl",
    }
)
"""Tables whose keys are somebody else's: of the environment, the user's own estimator or loss, the
purposes of calls, the model's chat template, verl."""

ENVIRON = "agent.environ"
"""A table of texts, whose keys are variables that the user names."""

VERL_SECTIONS = ("actor_rollout_ref.", "transfer_queue.")
"""How names of verl's begin that stand in no section here."""

UPSTREAMS = "agent.upstreams"
"""The tables of a run's hosted models, by their names."""

ENVIRONMENTS = "environments"
"""The list of tables of a run that mixes several environments."""

LISTS_OF_TABLES: Mapping[str, type[Section]] = {
    ENVIRONMENTS: MixedEnvironmentConfig,
    "agent.calls": CallKind,
}
"""Keys whose values are `[[lists]]` of tables, and what each of these is."""


def entry_suggestion(key: str) -> str:
    """As `suggestion`, for an unknown key of an entry of `LISTS_OF_TABLES`."""
    name, _, path = key.partition("[")
    *inside, last = path.split(".")[1:]
    section: type[Section] | None = LISTS_OF_TABLES[name]
    for name in inside:
        field = None if section is None else section.model_fields.get(name)
        section = None if field is None else section_of(field.annotation)
    names = [] if section is None else list(section.model_fields)
    close = difflib.get_close_matches(last, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def field_of(key: str) -> str:
    """The field whose words hold for a key: `environments[0].memory.kind` is `memory.kind`."""
    entry, _, name = key.partition(".")
    if not entry.startswith(f"{ENVIRONMENTS}["):
        return key
    own_section = name.partition(".")[0] in ("prompt", "memory", "actions")
    return name if own_section else f"environment.{name}"


@cache
def config_fields() -> Mapping[str, FieldInfo]:
    """Fields by dotted name, e.g. `rollout.horizon`, in the order of the classes."""
    return dict(_fields(RunConfig, prefix=""))


def section_of(annotation: object) -> type[Section] | None:
    """The section class that a field holds, or None for a plain field."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def _fields(section: type[Section], *, prefix: str) -> list[tuple[str, FieldInfo]]:
    found: list[tuple[str, FieldInfo]] = []
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner is None:
            found.append((f"{prefix}{name}", field))
        else:
            found += _fields(inner, prefix=f"{prefix}{name}.")
    return found


def description_of(key: str) -> str:
    """The documentation of a field on one line; empty for keys of the free tables."""
    field = config_fields().get(key)
    return " ".join((field.description or "").split()) if field is not None else ""


def takes_text(field: FieldInfo) -> bool:
    """Whether every value of the field, `None` apart, is a string."""
    kinds = get_args(field.annotation) or (field.annotation,)
    return all(kind is str or kind is type(None) or isinstance(kind, str) for kind in kinds)


def takes_none(field: FieldInfo) -> bool:
    """Whether the field may be left without a value."""
    return type(None) in get_args(field.annotation)


def suggestion(key: str) -> str:
    """What the writer of an unknown key may have meant: `"; did you mean 'rollout.horizon'?"`.

    A name of verl's own gets its place. Where no known key is close, the names that the key's
    section has; empty without a section.
    """
    if key.startswith(f"{UPSTREAMS}."):
        names = list(UpstreamConfig.model_fields)
        near = difflib.get_close_matches(key.rpartition(".")[2], names, n=1)
        return f"; did you mean {near[0]!r}?" if near else f"; an upstream has {', '.join(names)}"
    inside = [name for name in config_fields() if name.startswith(f"{key}.")]
    if inside:
        return f"; it is a section, and its fields are set one by one, e.g. {inside[0]!r}"
    if key.startswith(VERL_SECTIONS):
        return f"; settings of verl go under verl: 'verl.{key}'"
    section, _, last = key.rpartition(".")
    namesakes = [name for name in config_fields() if name.rpartition(".")[2] == last]
    if namesakes:
        return f"; did you mean {' or '.join(map(repr, namesakes))}?"
    beside = _names_in(section)
    close = [f"{section}.{name}" for name in difflib.get_close_matches(last, beside, n=1)]
    sections = dict.fromkeys(name.partition(".")[0] for name in config_fields())
    known = [*config_fields(), *sections]
    if not close:
        elsewhere = [name for name in known if name not in beside.values()]
        close = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.6)
    if not close:
        last_parts = {name.rpartition(".")[2]: name for name in known}
        part = difflib.get_close_matches(last, list(last_parts), n=1, cutoff=0.75)
        close = [last_parts[name] for name in part]
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; {section} has {', '.join(beside)}" if beside else ""


def _names_in(section: str) -> dict[str, str]:
    """What stands in a section, by its last part; nothing where there is no such section."""
    if not section:
        return {}
    of_section = [name for name in config_fields() if name.startswith(f"{section}.")]
    return {name.removeprefix(f"{section}.").partition(".")[0]: name for name in of_section}
