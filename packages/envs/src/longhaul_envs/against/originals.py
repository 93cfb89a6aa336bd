"""The authors' modules, imported from a folder."""

import importlib
import sys
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from longhaul_core.errors import ConfigError

__all__ = ["Pair", "original_module"]


class Pair(NamedTuple):
    """What both gave in one case."""

    what: str
    """What is compared, the same word for all cases."""
    case: str
    """In words."""
    ours: object
    theirs: object


def original_module(folder: Path, package: str, module: str) -> Any:  # noqa: ANN401
    """`package.module`, imported from `folder`, and not what the package would import by itself.

    Raises:
        ConfigError: If it is not there, or needs what is not installed.
    """
    root = package.partition(".")[0]
    if getattr(sys.modules.get(root), "__path__", None) != [str(folder / root)]:
        for name in [one for one in sys.modules if one == root or one.startswith(f"{root}.")]:
            del sys.modules[name]  # of another folder
    place = folder
    for name in accumulate(package.split("."), "{}.{}".format):
        place /= name.rpartition(".")[2]
        if not place.is_dir():
            raise ConfigError(f"{folder} has no folder {place.name}: is it the authors' checkout?")
        if name not in sys.modules:
            sys.modules[name] = bare = ModuleType(name)  # its own __init__ may start a server
            bare.__path__ = [str(place)]
    try:
        return importlib.import_module(f"{package}.{module}")
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"the authors' {package}.{module} cannot be imported: {error}; install what it needs "
            "beside this program, e.g. by `uv run --with`"
        ) from error
