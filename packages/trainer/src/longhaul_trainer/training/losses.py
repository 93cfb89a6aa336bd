"""The policy losses of a run, by `loss.kind`: the built-in ones, and one of the user's own.

A built-in kind is a file of `longhaul_trainer/losses/` that has a `LOSS`. The configuration reads
the settings of all of them, so these files import torch for type checking alone, or inside their
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo

from longhaul_core.components import find_component
from longhaul_trainer import losses
from longhaul_trainer.losses.kind import LossKind
from longhaul_trainer.losses.tokens import ActionTokens, PolicyLoss

if TYPE_CHECKING:
    from longhaul_trainer.config.learning import LossConfig

SETTING = "loss.kind"

OwnLoss = Callable[[ActionTokens, "LossConfig"], PolicyLoss]
"""A loss of the user's own: it gets the whole `[loss]` section, with its free table `options`."""


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


def compute_loss(tokens: ActionTokens, settings: LossConfig) -> PolicyLoss:
    """The loss of some rows, by the kind that the settings name.

    Raises:
        ConfigError: If a loss of the user's own cannot be imported, or takes other arguments.
    """
    known = LOSSES.get(settings.kind)
    if known is None:
        return own_loss(settings.kind)(tokens, settings)
    return known.compute(
        tokens, **{name: getattr(settings, name) for name in known.settings.model_fields}
    )


def own_loss(name: str) -> OwnLoss:
    """The function behind `package.module:name`.

    Raises:
        ConfigError: If it cannot be imported, or does not take tokens and settings.
    """
    built_in: Mapping[str, OwnLoss] = {}
    return find_component(name, built_in, setting=SETTING, takes=("tokens", "settings"))


def needs_behavior(kind: str) -> bool:
    """Whether a loss reads the logprobs under the engine; one's own may."""
    known = LOSSES.get(kind)
    return known is None or known.needs_behavior
