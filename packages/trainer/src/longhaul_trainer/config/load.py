"""From TOML files and overrides to a `RunConfig`, or one list of everything wrong.

Files may be combined: a later one overrides an earlier one, key by key, so that one file can
hold what makes an algorithm and another what makes a machine. `@recipes/gigpo` is the file
`configs/recipes/gigpo.toml` that the installed package carries.

Overrides are `dotted.key=value`, the value in TOML's syntax with bare strings allowed:
`rollout.horizon=40`, `optimizer.betas=[0.9,0.95]`, `model.path=/models/qwen`. They are put
into the file's table before anything is checked, so one rule serves both.
"""

import contextlib
import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

import longhaul_trainer
from longhaul_core.errors import ConfigError
from longhaul_trainer.config.agentgym import adopt_rounds_ctrl, is_rounds_ctrl
from longhaul_trainer.config.fields import (
    ENVIRON,
    FREE_TABLES,
    LISTS_OF_TABLES,
    UPSTREAMS,
    config_fields,
    description_of,
    entry_suggestion,
    field_of,
    suggestion,
    takes_none,
    takes_text,
)
from longhaul_trainer.config.run import RunConfig, dotted
from longhaul_trainer.config.section import Conflicts
from longhaul_trainer.config.toml import toml_value

LONGEST_SHOWN_VALUE = 80
PACKAGED = "@"
"""Begins the name of a file that the package carries."""
CONFIGS = Path(longhaul_trainer.__file__).with_name("configs")

LIST_AND_TABLE = {"tuple_type": "must be a list", "dict_type": "must be a table"}
"""By kind of error: what TOML calls it where pydantic's message has Python's word."""


class Description(NamedTuple):
    """The values of a configuration as far as they are valid, and what is wrong with it."""

    source: str
    """Where it is from, for messages."""
    config: RunConfig | None
    """The run, with defaults in the place of what is wrong; None where that is no run."""
    problems: tuple[str, ...]
    """One line each; there is none where `config` is the run that was described."""
    doubtful: frozenset[str]
    """Dotted names of the keys, or sections, that have a default in their place."""
    remarks: tuple[str, ...] = ()
    """What is no problem and may not be meant. Settings that mean nothing beside the others are
    named here, and have their defaults in `config`: nothing reads them, and none is stored."""

    def sure_of(self, *keys: str) -> bool:
        """Whether the values of these keys, or sections, are those that were described."""
        return not any(
            doubtful == key or doubtful.startswith(f"{key}.") or key.startswith(f"{doubtful}.")
            for key in keys
            for doubtful in self.doubtful
        )

    def run(self) -> RunConfig:
        """The run that is described.

        Raises:
            ConfigError: Every problem at once, each with its key, its value and the limit.
        """
        if self.config is None or self.problems:
            raise ConfigError(problem_list(self.source, self.problems))
        return self.config


def problem_list(source: str, problems: Sequence[str]) -> str:
    """A message that holds all of them."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{source} has {count}:", *problems])


def load_config(
    path: Path, overrides: Sequence[str] = (), *, layers: Sequence[Path] = ()
) -> RunConfig:
    """The run that a file, files over it and overrides describe.

    Args:
        path: A TOML file, or `@` and the name of a packaged one.
        overrides: `dotted.key=value`; they win over every file.
        layers: Further TOML files; a later one wins over an earlier one, key by key.

    Raises:
        ConfigError: If a file cannot be read, with every problem of the run if they can.
    """
    return read_file(path, overrides, layers=layers).run()


def read_file(
    path: Path, overrides: Sequence[str] = (), *, layers: Sequence[Path] = ()
) -> Description:
    """As `load_config`, with what is wrong in a list.

    Raises:
        ConfigError: If a file cannot be read.
    """
    return read_text(_text_of(path), overrides, source=str(path), layers=layers)


def load_default_config(overrides: Sequence[str] = (), *, layers: Sequence[Path] = ()) -> RunConfig:
    """The default run, which the installed package carries; see `load_config`."""
    return read_default(overrides, layers=layers).run()


def read_default(overrides: Sequence[str] = (), *, layers: Sequence[Path] = ()) -> Description:
    """As `load_default_config`, with what is wrong in a list."""
    return read_text(default_config_text(), overrides, source="the default run", layers=layers)


def stored_config(config_json: str, *, run_id: str) -> RunConfig:
    """The run behind the configuration that a store keeps of it.

    Args:
        config_json: As it is stored.
        run_id: Whose.

    Raises:
        ConfigError: It is no description of a run, as an import's is none.
    """
    try:
        return RunConfig.model_validate_json(config_json)
    except ValidationError as error:
        raise ConfigError(
            f"run {run_id} has no description that could be played "
            f"({error.error_count()} of its settings are none of a run); name a file that "
            "describes its environment, prompts and memory by --config"
        ) from error


def packaged_configs() -> list[str]:
    """Names of the files that the installed package carries, e.g. `@recipes/gigpo`."""
    files = sorted(CONFIGS.rglob("*.toml"))
    return [f"{PACKAGED}{file.relative_to(CONFIGS).with_suffix('')}" for file in files]


def default_config_text() -> str:
    """The default run's TOML file."""
    file = resources.files("longhaul_trainer.config") / "default.toml"
    return file.read_text(encoding="utf-8")


def parse_config(
    text: str,
    overrides: Sequence[str] = (),
    *,
    source: str = "run",
    layers: Sequence[Path] = (),
) -> RunConfig:
    """The run that TOML text, files over it and overrides describe.

    Args:
        text: TOML.
        overrides: `dotted.key=value`; a later one wins over an earlier one.
        source: Where the text is from, for messages.
        layers: TOML files; a later one wins over an earlier one and over the text.

    Raises:
        ConfigError: Every problem at once, each with its key, its value and the limit.
    """
    return read_text(text, overrides, source=source, layers=layers).run()


def read_text(
    text: str,
    overrides: Sequence[str] = (),
    *,
    source: str = "run",
    layers: Sequence[Path] = (),
) -> Description:
    """As `parse_config`, with what is wrong in a list.

    Raises:
        ConfigError: If it is no TOML, or a layer cannot be read.
    """
    table = _table_of(text, source)
    for layer in layers:
        _lay_over(table, _table_of(_text_of(layer), str(layer)))
    source = " with ".join([source, *map(str, layers)])
    problems = _apply_overrides(table, overrides) + adopt_rounds_ctrl(table)
    found = Conflicts()
    doubtful: frozenset[str] = frozenset()
    try:
        config = RunConfig.model_validate(table, context=found)
    except ValidationError as error:
        details = error.errors()
        lines = [line for each in details for line in _explain(each)]
        problems += dict.fromkeys(lines)  # a union reports a value once for each of its members
        doubtful = frozenset(_key_of(each["loc"])[0].partition("[")[0] for each in details)
        config = _with_defaults(table, doubtful, found := Conflicts())
    problems += _contradictions(found, doubtful)
    if config is None:
        return Description(source, None, tuple(problems), doubtful)
    remarks = tuple(config.all_remarks())
    return Description(source, config.as_read(), tuple(problems), doubtful, remarks)


def _with_defaults(
    table: Mapping[str, object], doubtful: frozenset[str], found: Conflicts
) -> RunConfig | None:
    """The run without the keys that are wrong, so that what else is wrong can be reported too."""
    rest = copy.deepcopy(dict(table))
    for key in doubtful:
        # Names inside a free table may be nested or dotted; the table goes as one.
        free = next((free for free in FREE_TABLES if key.startswith(f"{free}.")), key)
        _drop(rest, free.split("."))
    for name, field in RunConfig.model_fields.items():
        if field.is_required():
            rest.setdefault(name, 1)
    try:
        return RunConfig.model_validate(rest, context=found)
    except ValidationError:
        found.clear()
        return None


def _drop(table: dict[str, object], path: Sequence[str]) -> None:
    *parents, last = path
    for parent in parents:
        inner = table.get(parent)
        if not isinstance(inner, dict):
            return
        table = cast("dict[str, object]", inner)
    table.pop(last, None)


def _contradictions(found: Conflicts, doubtful: frozenset[str]) -> list[str]:
    """What is wrong between fields, but for what a default in a wrong value's place may have done.

    A contradiction names every field that takes part in it.
    """
    return [
        line
        for problems in found.values()
        for problem in problems
        for line in problem.splitlines()
        if not any(re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", line) for key in doubtful)
    ]


def _text_of(path: Path) -> str:
    file = path
    if str(path).startswith(PACKAGED):
        file = CONFIGS / f"{str(path).removeprefix(PACKAGED)}.toml"
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        packaged = ", ".join(packaged_configs())
        raise ConfigError(f"{path}: no such file; with Longhaul come {packaged}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _table_of(text: str, source: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from None


def _lay_over(below: dict[str, object], above: Mapping[str, object], *, prefix: str = "") -> None:
    """Put `above` into `below`, key by key; the options of an environment go as one."""
    for key, value in above.items():
        name, earlier = f"{prefix}{key}", below.get(key)
        if name == "verl" and isinstance(earlier, dict) and isinstance(value, dict):
            with contextlib.suppress(ValueError):  # names that clash: validation will say how
                below[key] = dotted(cast("Mapping[str, object]", earlier)) | dotted(
                    cast("Mapping[str, object]", value)
                )
        elif isinstance(earlier, dict) and isinstance(value, dict) and name not in FREE_TABLES:
            _lay_over(
                cast("dict[str, object]", earlier),
                cast("Mapping[str, object]", value),
                prefix=f"{name}.",
            )
        else:
            below[key] = value


def _apply_overrides(table: dict[str, object], overrides: Sequence[str]) -> list[str]:
    """Put overrides into `table`; what is wrong with them comes back, one line each."""
    problems: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.append(f"{override!r} is not an override; write key=value")
            continue
        path = _table_path(key)
        if path is None:
            problems.append(f"{key}: unknown key{suggestion(key)}")
        else:
            _put(table, path, _override_value(key, text.strip()))
    return problems


def _table_path(key: str) -> tuple[str, ...] | None:
    """Where an override goes; None if no field has this name."""
    for free in (*FREE_TABLES, ENVIRON):
        if key.startswith(f"{free}.") and key != f"{free}.":
            return (*free.split("."), key.removeprefix(f"{free}."))
    known = is_rounds_ctrl(key) or key in config_fields()
    return tuple(key.split(".")) if known else None


def _put(table: dict[str, object], path: tuple[str, ...], value: object) -> None:
    *parents, last = path
    for parent in parents:
        inner = table.setdefault(parent, {})
        if not isinstance(inner, dict):
            return  # not a table where one must be: validation of the whole will say so
        if parent == "verl":
            try:
                inner = table[parent] = dotted(cast("Mapping[str, object]", inner))
            except ValueError:
                return  # the file's own names clash, and validation will say how
        table = cast("dict[str, object]", inner)
    table[last] = value


def _override_value(key: str, text: str) -> object:
    field = config_fields().get(key)
    if field is not None and takes_none(field) and text == "none":
        return None
    is_text = key.startswith(f"{ENVIRON}.") if field is None else takes_text(field)
    quoted = text[:1] in {'"', "'"}
    if is_text and not quoted:
        return text
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _explain(details: ErrorDetails) -> list[str]:
    """One validation error as lines for people: key, value, limit, and what the field is."""
    key, inside = _key_of(details["loc"])
    kind, message = details["type"], details["msg"]
    if kind == "extra_forbidden":
        of_entry = "[" in key
        return [f"{key}: unknown key{entry_suggestion(key) if of_entry else suggestion(key)}"]
    about = description_of(field_of(key))
    if kind == "missing":
        return [f"{key}{inside}: missing. {about}"]
    if kind == "value_error":
        reasons = message.removeprefix("Value error, ").splitlines()
        return [f"{key}: {reason}" if key else reason for reason in reasons]
    if inside and key.rpartition(".")[0] in FREE_TABLES:
        message = "must be a string, a number, a boolean, or a list or table of those"
    message = LIST_AND_TABLE.get(kind, message)
    if kind == "too_short":
        fewest = details.get("ctx", {})["min_length"]
        message = f"must have at least {fewest} {'entry' if fewest == 1 else 'entries'}"
    if kind == "too_long":
        message = f"must have at most {details.get('ctx', {})['max_length']} entries"
    message = message.replace("Input should be", "must be").replace("String should", "must")
    place = key if key.rpartition(".")[0] in FREE_TABLES else f"{key}{inside}"
    return [f"{place}{_shown(key, details['input'])}: {message}. {about}".rstrip(". ") + "."]


def _key_of(location: tuple[int | str, ...]) -> tuple[str, str]:
    """The dotted key of an error, and what follows inside its value, e.g. `[0]`."""
    parts = [str(part) for part in location]
    for name in LISTS_OF_TABLES:
        depth = name.count(".") + 1
        if ".".join(parts[:depth]) == name and len(parts) > depth:
            return ".".join([f"{name}[{parts[depth]}]", *parts[depth + 1 :]]), ""
    if parts[:2] == UPSTREAMS.split("."):
        return ".".join(parts), ""
    for free in FREE_TABLES:
        depth = free.count(".") + 1
        if ".".join(parts[:depth]) == free:
            return ".".join(parts[: depth + 1]), "".join(f"[{part}]" for part in parts[depth + 1 :])
    depth = next(
        (n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in config_fields()), len(parts)
    )
    return ".".join(parts[:depth]), "".join(f"[{part}]" for part in parts[depth:])


def _shown(key: str, value: object) -> str:
    """` = value` as TOML writes it, cut where it is long; an address may hold a password."""
    if key == "store":
        return ""
    try:
        text = "{…}" if isinstance(value, dict) else toml_value(value)
    except TypeError:
        text = str(cast("object", value))
    if len(text) > LONGEST_SHOWN_VALUE:
        text = f"{text[:LONGEST_SHOWN_VALUE]}…"
    return f" = {text}"
