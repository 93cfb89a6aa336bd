"""The estimators of a run: the built-in ones, and one of the user's own.

The built-in ones are `longhaul_core.advantages.estimators`: each is a file of that folder, and has
an independent definition in `longhaul_core/audit/formulas.py` and a recipe in
`configs/algorithms/`. Nothing here knows about verl or imports torch: the configuration reads this
module.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from itertools import chain
from typing import Annotated, cast

from longhaul_core.advantages import EpisodeCredit, LossUnit
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
from longhaul_core.text import shortened
from longhaul_trainer.component_settings import BuiltInOrOwn, Option

__all__ = ["OWN", "EstimatorSettings", "estimate", "own_estimator", "smallest_group"]

SETTING = "algorithm.name"
IMITATING: Mapping[str, Estimator] = {"imitation": IMITATION, "dpo": DPO}
"""What stands in an estimator's place where stored episodes are trained."""

KNOWN: Mapping[str, Estimator] = {**ESTIMATORS, **IMITATING}


def estimate(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    """Credit of every group of a training step, in the order given.

    Raises:
        GroupError: If a group has fewer episodes than `smallest_group`, or lacks the greedy
            episode that it is to be compared with.
        ConfigError: If an estimator of the user's own cannot be imported, raises, or returns
            something that is no credit of these groups.
    """
    if not groups:
        return []
    found = KNOWN.get(settings.name, OWN).compute(groups, settings)
    if settings.name not in KNOWN:
        _refuse_other_credit(found, groups, name=settings.name)
    return found


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


def _refuse_other_credit(found: object, groups: Sequence[Group], *, name: str) -> None:
    """Refuse what a function of the user's own returned, unless it is one credit per episode."""
    estimator = f"{SETTING} = {name!r}"
    credits = cast("Sequence[Sequence[object]]", found)
    num_episodes = [len(group.step_rewards) for group in groups]
    if not isinstance(found, list | tuple) or [*map(len, credits)] != num_episodes:
        raise ConfigError(
            f"{estimator}: must return a list with one credit per episode of each group, for "
            f"groups of {num_episodes} episodes, got {shortened(repr(credits), 200)}"
        )
    for group, of_group in zip(groups, credits, strict=True):
        for place, (rewards, credit) in enumerate(zip(group.step_rewards, of_group, strict=True)):
            where = f"{estimator}, group {group.name!r}, episode {place}"
            if not isinstance(credit, EpisodeCredit):
                raise ConfigError(
                    f"{where}: got a {type(credit).__name__}, expected a "
                    "longhaul_core.advantages.EpisodeCredit"
                )
            numbers = (credit.advantages, credit.step_advantages, credit.returns_to_go)
            if any(len(each) != len(rewards) for each in numbers):
                raise ConfigError(
                    f"{where}: has {len(rewards)} steps, and its credit has "
                    f"{[len(each) for each in numbers]} advantages, step advantages and returns"
                )
            if not all(map(math.isfinite, (credit.episode_advantage, *chain(*numbers)))):
                raise ConfigError(f"{where}: its credit has a number that is not finite")


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
