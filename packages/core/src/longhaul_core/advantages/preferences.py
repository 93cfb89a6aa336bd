"""Preferences between episodes of one task: which make a pair, and how far a pair has come.

    m = β · (gain of the chosen episode − gain of the rejected one)

is a pair's margin, with the gain of an episode `log π(y) − log π_ref(y)`, both summed over all
trained tokens of all its calls: π is the policy, π_ref the weights that the run starts from.

Shapes: P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.advantages.arguments import check_numbers
from longhaul_core.advantages.credit import FloatArray

__all__ = ["Pair", "PreferenceSettings", "Preferences", "pair_losses", "paired"]

ROUNDING = 1e-9
"""By how much a difference of returns may be less than the least one: sums of the same rewards."""


class PreferenceSettings(BaseModel):
    """Which episodes make a pair, and how strongly a pair is learned from."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    beta: float = Field(default=0.1, gt=0)
    """Of `dpo`: factor of the log-probabilities in a pair's margin. The smaller it is, the farther
    the policy may go from the weights that the run starts from."""
    min_gap: float = Field(default=1e-6, ge=1e-6)
    """Of `dpo`: least difference of the returns of a pair's episodes, in the environment's
    units."""
    pairs_per_task: int = Field(default=1, ge=1)
    """Of `dpo`: most pairs of a task. Its best episode, of equal ones the shorter, makes a pair
    with each worse one, those with the lowest returns first."""


class Pair(NamedTuple):
    """Two episodes of a group, by their places in it."""

    chosen: int
    rejected: int
    margin: float
    """`m`, in nats times β; above 0 where the chosen one has become likelier than the rejected one,
    both measured from the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What pairs of a group are made by."""

    settings: PreferenceSettings
    gains: Sequence[float]
    """Of each episode, `log π − log π_ref` of its trained tokens, in nats."""

    def pairs(self, step_rewards: Sequence[FloatArray]) -> list[Pair]:
        """The pairs of the group's episodes, with their margins.

        Args:
            step_rewards: Rewards of each episode's steps, in the environment's units.

        Raises:
            ValueError: If a gain is not finite, or there is not one for each episode.
        """
        check_numbers(np.asarray(self.gains, np.float64), name="gain over the reference")
        if len(self.gains) != len(step_rewards):
            raise ValueError(
                f"{len(step_rewards)} episodes need a gain over the reference each, got "
                f"{len(self.gains)}"
            )
        found = paired([fsum(rewards.tolist()) for rewards in step_rewards], self.settings)
        return [
            Pair(chosen, rejected, self.settings.beta * (self.gains[chosen] - self.gains[rejected]))
            for chosen, rejected in found
        ]


def paired(returns: Sequence[float], settings: PreferenceSettings) -> list[tuple[int, int]]:
    """Places of the chosen and of the rejected episode of each pair.

    The chosen one has the highest return, and is the first of equal ones.

    Args:
        returns: Of a task's episodes, in the environment's units.
        settings: Which pairs.
    """
    if not returns:
        return []
    best = max(range(len(returns)), key=returns.__getitem__)
    least = settings.min_gap - ROUNDING
    worse = [place for place, each in enumerate(returns) if returns[best] - each >= least]
    lowest = sorted(worse, key=returns.__getitem__)[: settings.pairs_per_task]
    return [(best, place) for place in lowest]


def pair_losses(margins: Sequence[float]) -> FloatArray:
    """`−log σ(m)` of each pair, without overflow; shape (P,)."""
    return np.logaddexp(0.0, -np.asarray(margins, np.float64))
