"""The estimators of a run: the built-in ones, and one of the user's own.

The built-in ones are `longhaul_core.advantages.estimators`: each is a file of that folder, and has
an independent definition in `longhaul_core/audit/formulas.py` and a recipe in
`configs/algorithms/`. Nothing here knows about verl or imports torch: the configuration reads this
module.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Annotated

from longhaul_core.advantages import LossUnit
from longhaul_core.advantages import estimators as built_in
from longhaul_core.advantages.dpo import DPO
from longhaul_core.advantages.estimators import (
    ESTIMATORS,
    Compute,
    Estimator,
    Group,
    GroupCredit,
)
from longhaul_core.advantages.imitation import IMITATION
from longhaul_core.components import find_component
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_trainer.config.component_settings import BuiltInOrOwn, Option

__all__ = ["KNOWN", "OWN", "SETTING", "EstimatorSettings", "own_estimator", "smallest_group"]

SETTING = "algorithm.name"
IMITATING: Mapping[str, Estimator] = {"imitation": IMITATION, "dpo": DPO}
"""What stands in an estimator's place where stored episodes are trained."""

KNOWN: Mapping[str, Estimator] = {**ESTIMATORS, **IMITATING}


def own_estimator(name: str) -> Compute:
    """The function behind `package.module:name`.

    Raises:
        ConfigError: If it cannot be imported, or does not take groups and settings.
    """
    computes = {known: entry.compute for known, entry in ESTIMATORS.items()}
    return find_component(name, computes, setting=SETTING, takes=("groups", "settings"))


def smallest_group(settings: EstimatorSettings) -> int:
    """Fewest episodes that can be credited: two to compare, or as many as pass@k draws.

    One is enough where the baseline does not come from the others.
    """
    if not settings.compares_episodes:
        return 1
    return max(2, settings.pass_k or 0)


def _own_credit(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    compute = own_estimator(settings.name)
    try:
        with attributed_to(EnvironmentFailure, f"{SETTING} = {settings.name!r}"):
            return compute(groups, settings)
    except EnvironmentFailure as error:
        raise ConfigError(str(error)) from error


OWN = Estimator(compute=_own_credit)
"""An estimator of the user's own: it compares groups of at least two episodes, without a critic or
a greedy episode, so that the trainer and the audit know which groups are trained."""


class EstimatorSettings(built_in.EstimatorSettings):
    """Settings that estimators read: the first part of `[algorithm]`."""

    name: Annotated[str, BuiltInOrOwn({name: each.summary for name, each in KNOWN.items()})] = (
        "gigpo"
    )
    """The advantage estimator, by what an episode or a step is compared with; or a function of
    your own."""
    options: Mapping[str, Option] = {}
    """Settings of an estimator of your own, which gets them as `settings.options`."""

    @property
    def imitates(self) -> bool:
        """Whether stored episodes are trained, whose replies nobody sampled."""
        return self.name in IMITATING

    @property
    def compares_episodes(self) -> bool:
        """Whether advantages are measured from the other episodes of a group."""
        return self._known.compares_episodes

    @property
    def penalises_actions(self) -> bool:
        """Whether the penalty of an invalid action can lower that action's advantage alone."""
        return self._known.penalises_actions

    @property
    def needs_greedy_episode(self) -> bool:
        """Whether a group is compared with a greedy episode of its task."""
        return self._known.needs_greedy_episode

    @property
    def uses_critic(self) -> bool:
        """Whether advantages need values."""
        return self._known.needs_critic

    @property
    def loss_units(self) -> tuple[LossUnit, ...]:
        """Values of `loss_unit` that agree with the estimator."""
        return self._known.loss_units

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of the settings here that the estimator does not read; one's own may read all."""
        if self.name not in KNOWN:
            return ()
        read = {"name", "discount", *self._known.reads}
        return tuple(field for field in EstimatorSettings.model_fields if field not in read)

    @property
    def _known(self) -> Estimator:
        """The registry's entry; for an estimator of one's own, what is true of all of them."""
        return KNOWN.get(self.name, OWN)

    def estimator_conflicts(self) -> Generator[str]:
        """Settings that contradict each other for some estimator."""
        if self.step_advantage_weight == self.episode_advantage_weight == 0:
            yield (
                "algorithm.step_advantage_weight = 0 and algorithm.episode_advantage_weight = 0 "
                "leave no advantage to learn from; raise one"
            )
