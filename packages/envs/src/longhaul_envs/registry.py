"""Registers the packaged environments with Gymnasium.

Once this module is imported, `gymnasium.make("longhaul/TextCraft-v0", depth=2)` works as for
any environment. Each folder of this package with an environment registers it when it is imported,
which imports neither its class nor what it depends on.
"""

import importlib
import pkgutil

import longhaul_envs

__all__ = ["register_all"]


def register_all() -> None:
    """Make every packaged environment known to Gymnasium. Safe to call again."""
    for module in pkgutil.iter_modules(longhaul_envs.__path__, prefix="longhaul_envs."):
        if module.ispkg:
            importlib.import_module(module.name)


register_all()  # by importing, as users of Gymnasium are used to
