"""The parts of a run that a configuration names: built-in ones, and `package.module:name`.

A memory, a form of actions, a prompt template, an estimator or a reward function is named either
by one of the built-in names or by the module and the name of one's own. A module of one's own may
lie in the working folder; every process that needs the part imports it there, by the same name.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to

__all__ = [
    "build_component",
    "find_component",
    "import_module",
    "is_component",
    "is_own",
    "known_components",
]

T = TypeVar("T")

OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""`package.module:name`."""


def is_component(name: str, built_in: Collection[str]) -> bool:
    """Whether `name` is a built-in name, or has the form `package.module:name`."""
    return name in built_in or is_own(name)


def is_own(name: str) -> bool:
    """Whether `name` has the form `package.module:name`."""
    return OWN.fullmatch(name) is not None


def known_components(built_in: Collection[str]) -> str:
    """What a setting may be, for messages: `one of none, window, full, or package.module:name`."""
    own = "package.module:name of your own"
    return f"one of {', '.join(built_in)}, or {own}" if built_in else own


def find_component(
    name: str, built_in: Mapping[str, T], *, setting: str, takes: Sequence[str] = ()
) -> T:
    """The built-in part of that name, or the callable behind `package.module:name`.

    Args:
        name: As the configuration has it.
        built_in: Parts by their names.
        setting: Dotted name of the setting, for messages.
        takes: What the callable is given, in order: plain names are positional arguments, and
            those that end in `=` are given by keyword.

    Raises:
        ConfigError: If it is neither, its module cannot be imported or has no such name, what
            it has is not a plain callable, or the callable does not take these arguments.
    """
    if name in built_in:
        return built_in[name]
    where = f"{setting} = {name!r}"
    if OWN.fullmatch(name) is None:
        raise ConfigError(f"{where}: must be {known_components(built_in)}")
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name, setting=where)
    found: object = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"{where}: module {module_name} has no {attribute}")
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise ConfigError(f"{where}: {attribute} is not a plain function or class")
    by_keyword = {argument[:-1]: object() for argument in takes if argument.endswith("=")}
    in_order = [object() for argument in takes if not argument.endswith("=")]
    signature = inspect.signature(found)
    try:
        signature.bind(*in_order, **by_keyword)
    except TypeError as error:
        raise ConfigError(
            f"{where}: is called as {attribute}({', '.join(takes)}), and takes {signature}: {error}"
        ) from error
    return cast("T", found)  # what it returns is looked at where it is called


def build_component(
    name: str,
    built_in: Mapping[str, T],
    *,
    setting: str,
    needs: Sequence[str],
    arguments: Mapping[str, object],
) -> object:
    """What the part of that name makes of keyword arguments.

    Args:
        name: As the configuration has it.
        built_in: Callables by their names.
        setting: Dotted name of the setting, for messages.
        needs: Attributes that what is made must have.
        arguments: Given by keyword.

    Raises:
        ConfigError: As in `find_component`; or if a part of the user's own raises, or what it
            makes lacks something.
    """
    factory = find_component(
        name, built_in, setting=setting, takes=[f"{argument}=" for argument in arguments]
    )
    make = cast("type[object]", factory)
    if name in built_in:
        return make(**arguments)
    where = f"{setting} = {name!r}"
    try:
        with attributed_to(EnvironmentFailure, where):
            made = make(**arguments)
    except EnvironmentFailure as error:
        raise ConfigError(str(error)) from error
    lacking = [attribute for attribute in needs if not hasattr(made, attribute)]
    if lacking:
        raise ConfigError(f"{where}: made a {type(made).__name__}, which has no {lacking[0]}")
    return made


def import_module(module: str, *, setting: str) -> ModuleType:
    """Import a module that a configuration names; it may lie in the working folder.

    Args:
        module: Its name.
        setting: What named it, for the message.

    Raises:
        ConfigError: If it cannot be imported, with the reason.
    """
    _make_importable(Path.cwd())
    try:
        with attributed_to(EnvironmentFailure, f"importing {module}"):
            return importlib.import_module(module)
    except EnvironmentFailure as error:
        raise ConfigError(f"{setting}: {error}") from error


def _make_importable(folder: Path) -> None:
    """Let this process and its children import modules that lie in `folder`, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        earlier = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [earlier, str(folder)]))
