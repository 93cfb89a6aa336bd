"""Every built-in estimator of advantages, and the settings of all of them.

A file of this folder that has `ESTIMATORS` is found here. Training calls them by the run's
settings; the store's `queries.advantages_by_estimator` calls any of them again on what a run
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from pydantic import create_model
from pydantic.fields import FieldInfo

from longhaul_core import advantages
from longhaul_core.advantages.estimator import (
    CommonSettings,
    Compute,
    Estimator,
    Group,
    GroupCredit,
)

if TYPE_CHECKING:
    from longhaul_core.advantages.gae_credit import GaeSettings
    from longhaul_core.advantages.gigpo import GigpoSettings
    from longhaul_core.advantages.graphgpo import GraphgpoSettings
    from longhaul_core.advantages.hgpo import HgpoSettings
    from longhaul_core.advantages.pass_at_k import PassAtKSettings

__all__ = ["ESTIMATORS", "Compute", "Estimator", "EstimatorSettings", "Group", "GroupCredit"]


def _found() -> dict[str, Estimator]:
    names = sorted(module.name for module in iter_modules(advantages.__path__))
    modules = [
        import_module(f"{advantages.__name__}.{name}") for name in names if name != "estimators"
    ]
    return {
        name: estimator
        for module in modules
        for name, estimator in getattr(module, "ESTIMATORS", {}).items()
    }


ESTIMATORS: Mapping[str, Estimator] = _found()
"""Every built-in estimator by its `algorithm.name`."""


def _fields_of_all() -> dict[str, tuple[object, FieldInfo]]:
    """The settings of all estimators, each with who reads it, as `create_model` takes them."""
    found: dict[str, tuple[object, FieldInfo]] = {}
    for estimator in ESTIMATORS.values():
        for name in estimator.reads:
            field = copy(estimator.settings.model_fields[name])
            readers = [f"`{each}`" for each, of in ESTIMATORS.items() if name in of.reads]
            field.description = f"{field.description} Read by {', '.join(readers)}."
            found[name] = (field.annotation, field)
    return found


if TYPE_CHECKING:

    class EstimatorSettings(
        GigpoSettings, GraphgpoSettings, HgpoSettings, GaeSettings, PassAtKSettings
    ):
        """Settings that estimators read: the first part of `[algorithm]`."""
else:
    EstimatorSettings = create_model(
        "EstimatorSettings",
        __base__=CommonSettings,
        __module__=__name__,
        __doc__="Settings that estimators read: the first part of `[algorithm]`.",
        **_fields_of_all(),
    )
