"""The credit of a training step, by the run's estimator."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import cast

from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.estimators import Group, GroupCredit
from longhaul_core.errors import ConfigError
from longhaul_core.text import shortened
from longhaul_trainer.config.estimator_settings import KNOWN, OWN, SETTING, EstimatorSettings

__all__ = ["estimate"]


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
