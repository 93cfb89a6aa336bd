"""The policy loss of a run, by `loss.kind`: a built-in one, or one of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from longhaul_core.components import find_component
from longhaul_trainer.losses.registry import LOSSES
from longhaul_trainer.losses.tokens import ActionTokens, PolicyLoss

if TYPE_CHECKING:
    from longhaul_trainer.config.learning import LossConfig

SETTING = "loss.kind"

OwnLoss = Callable[[ActionTokens, "LossConfig"], PolicyLoss]
"""A loss of the user's own: it gets the whole `[loss]` section, with its free table `options`."""


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
