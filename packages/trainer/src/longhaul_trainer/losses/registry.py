"""The built-in losses, and the settings of all of them, which the configuration reads.

A built-in kind is a file of this folder that has a `LOSS`. These files import torch for type
checking alone, or inside their functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic.fields import FieldInfo

from longhaul_trainer import losses
from longhaul_trainer.losses.kind import LossKind

__all__ = ["LOSSES", "defaults_of", "fields_of_every_loss"]


def _found() -> dict[str, LossKind]:
    names = sorted(module.name for module in iter_modules(losses.__path__))
    modules = {name: import_module(f"{losses.__name__}.{name}") for name in names}
    return {name: module.LOSS for name, module in modules.items() if hasattr(module, "LOSS")}


LOSSES: Mapping[str, LossKind] = _found()
"""Every built-in kind."""


def fields_of_every_loss() -> dict[str, tuple[object, FieldInfo]]:
    """The settings of all built-in kinds, without a value, as `pydantic.create_model` takes them.

    Where kinds share one, the first that has it says what it is.
    """
    found: dict[str, tuple[object, FieldInfo]] = {}
    for known in LOSSES.values():
        for name, field in known.settings.model_fields.items():
            own = FieldInfo(default=None, description=field.description)
            own.metadata = [*field.metadata]
            annotation: Any = field.annotation
            found.setdefault(name, (annotation | None, own))
    return found


def defaults_of(kind: object) -> dict[str, object]:
    """The settings that a built-in kind reads, by its own defaults; empty for any other."""
    known = LOSSES.get(kind) if isinstance(kind, str) else None
    return {} if known is None else known.defaults
