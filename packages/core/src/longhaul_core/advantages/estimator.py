"""One estimator of advantages: what it is given, what computes it, and what it needs of a run.

An estimator takes all groups of a training step and returns one credit per episode of each
group. Most compare inside a group; REINFORCE++ and GAE take statistics over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.advantages.credit import EpisodeCredit, Statistics
from longhaul_core.advantages.preferences import Preferences
from longhaul_core.advantages.weights import LossUnit
from longhaul_core.advantages.whiten import Whiten


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The attempts at one task that did not fail; each field has one entry per episode."""

    name: str
    step_rewards: Sequence[npt.NDArray[np.float64]]
    """Rewards of the steps, penalties that lower returns taken off."""
    anchor_states: Sequence[Sequence[str]]
    """State that each step was taken in."""
    final_states: Sequence[str | None]
    """State seen after each episode's last step; None in one that succeeded."""
    num_action_tokens: Sequence[Sequence[int]]
    """Tokens of each step's action."""
    action_penalties: Sequence[npt.NDArray[np.float64]] = ()
    """What each step alone is lowered by; empty where all penalties are taken off the rewards."""
    agents: Sequence[Sequence[str | None]] = ()
    """Name of the agent of each step, None for one without a trained call; empty unless
    `baseline_per_agent`."""
    greedy_rewards: npt.NDArray[np.float64] | None = None
    """Of the greedy episode beside the group, penalties taken off; None if there is none."""
    token_values: Sequence[Sequence[npt.NDArray[np.float64]]] | None = None
    """The critic's value before each token of each step's action; None without a critic."""
    final_values: Sequence[float | None] | None = None
    """The critic's value of each episode's final observation, None for one that terminated; None
    without a critic."""
    preferences: Preferences | None = None
    """By which episodes make pairs; None where none do."""


GroupCredit = tuple[EpisodeCredit, ...]
"""Credit of a group's episodes, in their order."""

Compute = Callable[[Sequence[Group], Any], list[GroupCredit]]
"""Credit of every group of a training step, in the order given.

The second argument has the estimator's settings. A function of one's own has this form; it gets the
whole `[algorithm]` section, with its free table `options`, and groups of at least two episodes.
"""


class CommonSettings(BaseModel):
    """Settings that every estimator has.

    An estimator with further ones has a class of its own; those that several read are below, since
    a setting means the same to all its readers.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str = "gigpo"
    """Which estimator: a built-in name, or a function of one's own."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Discount (gamma) of the return-to-go, per environment step, not per token. `gigpo`, `hgpo`,
    `gae` and `reinforce_plus_plus` learn from it; the others only record it."""


class Scaled(CommonSettings):
    """Of estimators that divide by a deviation, or by nothing whatever it says."""

    scale_by_std: bool = True
    """Divide advantages by the standard deviation of what they are compared with; `drgrpo`,
    `rloo` and `remax` never do, and `reinforce_plus_plus` and `gae` always divide by the training
    step's."""


class WithStatistics(CommonSettings):
    """Of estimators that compare whole episodes."""

    statistics: Statistics = "episode"
    """Mean and deviation over episodes, or over rows as in GiGPO's reference code, where a long
    episode counts more."""


class PerAgent(CommonSettings):
    """Of estimators that can compare each agent of a program with itself."""

    baseline_per_agent: bool = False
    """Compare the steps of each agent of a program with steps of the same agent alone (Dr.MAS; its
    code takes `statistics = "row"`). A step's trained calls must be of one agent."""


class Anchored(CommonSettings):
    """Of estimators that add a part of steps taken in one state."""

    step_advantage_weight: float = Field(default=1.0, ge=0)
    """Weight (omega) of the step part beside the episode part."""
    anchor_similarity: float | None = Field(default=None, gt=0, lt=1)
    """Treat states whose texts are at least this similar as one; left out, only equal texts are
    one state."""


class Whitened(CommonSettings):
    """Of estimators that compare all of a training step."""

    whiten: Whiten = "token"
    """Unit over which the training step's mean and deviation are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """One estimator, and what it needs of a run."""

    compute: Compute
    summary: str = ""
    """What an advantage is measured from, in a few words, for the configuration's reference."""
    settings: type[CommonSettings] = CommonSettings
    """What it reads of `[algorithm]`; other settings of estimators are refused unless they have
    their default value."""
    penalises_actions: bool = False
    """Whether it takes `Group.action_penalties`."""
    compares_episodes: bool = True
    """Whether its baseline comes from the other episodes of a group; if not, one is enough."""
    needs_greedy_episode: bool = False
    """Whether a greedy episode is played beside each group."""
    needs_critic: bool = False
    loss_units: tuple[LossUnit, ...] = get_args(LossUnit)
    """Values of `algorithm.loss_unit` that agree with its derivation."""
    compares_training_step: bool = False
    """Whether its statistics are taken over all groups of a training step."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of its settings, beside those that every estimator has."""
        common = CommonSettings.model_fields
        return tuple(name for name in self.settings.model_fields if name not in common)


def per_group(credit: Callable[[Group, Any], GroupCredit]) -> Compute:
    """One that compares inside each group alone."""
    return lambda groups, settings: [credit(group, settings) for group in groups]


def by_group(credits: Sequence[EpisodeCredit], groups: Sequence[Group]) -> list[GroupCredit]:
    """Credit of all episodes of a training step, one after another, by their groups."""
    remaining = iter(credits)
    return [tuple(islice(remaining, len(group.step_rewards))) for group in groups]
