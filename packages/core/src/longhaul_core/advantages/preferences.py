"""Preferences between episodes of one task, or between steps: which make a pair, and how far it is.

    m = β · (gain of the chosen side − gain of the rejected one)

is a pair's margin, with the gain of a side `log π(y) − log π_ref(y)`, both summed over all trained
tokens of its calls: π is the policy, π_ref the weights that the run starts from. A side is an
episode or one step. Two steps are compared where the task's episodes took different actions in the
same state, read in the same prompt; an action is worth the mean return from there, over the
episodes that took it.

Shapes: P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from longhaul_core.advantages.arguments import check_numbers
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.returns import returns_to_go

__all__ = [
    "Choice",
    "Pair",
    "PreferenceSettings",
    "Preferences",
    "Side",
    "pair_losses",
    "paired",
    "paired_steps",
]

ROUNDING = 1e-9
"""By how much a difference of returns may be less than the least one: sums of the same rewards."""


class PreferenceSettings(BaseModel):
    """Which episodes or steps make a pair, and how strongly a pair is learned from."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    pairs: Literal["episodes", "steps"] = "episodes"
    """Of `dpo`: what makes a pair. `episodes`: whole ones of a task. `steps`: different actions in
    the same state of a task, read in the same prompt; what an action is worth is the mean, over the
    episodes that took it there, of the rewards from there on."""
    beta: float = Field(default=0.1, gt=0)
    """Of `dpo`: factor of the log-probabilities in a pair's margin. The smaller it is, the farther
    the policy may go from the weights that the run starts from."""
    min_gap: float = Field(default=1e-6, ge=1e-6)
    """Of `dpo`: least difference of the returns of a pair's episodes, or of what its actions are
    worth, in the environment's units."""
    pairs_per_task: int = Field(default=1, ge=1)
    """Of `dpo`: most pairs of a task. Its best episode, of equal ones the shorter, makes a pair
    with each worse one, those with the lowest returns first. Of pairs of steps: most of a state,
    whose best action makes a pair with each worse one."""


class Choice(NamedTuple):
    """What a step did, and where."""

    state: str
    """Of its anchor state and its prompt together; empty for a step that is in no pair."""
    action: str

    @classmethod
    def of(cls, anchor: str, prompt_hash: str, action: str) -> Self:
        """What a step did in a state, and after a prompt; empty of a step without one."""
        return cls(f"{anchor} {prompt_hash}" if prompt_hash else "", action)


class Side(NamedTuple):
    """One of a pair, by its place in the group."""

    episode: int
    step: int | None = None
    """None for all of them."""


class Pair(NamedTuple):
    """Two episodes of a group, or two steps."""

    chosen: Side
    rejected: Side
    margin: float
    """`m`, in nats times β; above 0 where the chosen one has become likelier than the rejected one,
    both measured from the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What pairs of a group are made by."""

    settings: PreferenceSettings
    gains: Sequence[Sequence[float]]
    """Of each step of each episode, `log π − log π_ref` of its trained tokens, in nats."""
    choices: Sequence[Sequence[Choice]] = ()
    """Of each step of each episode; read where steps are compared."""

    def pairs(self, step_rewards: Sequence[FloatArray]) -> list[Pair]:
        """The pairs of the group's episodes or of their steps, with their margins.

        Args:
            step_rewards: Rewards of each episode's steps, in the environment's units.

        Raises:
            ValueError: If a gain is not finite, or there is not one for each step.
        """
        lengths = [len(rewards) for rewards in step_rewards]
        if [len(gains) for gains in self.gains] != lengths:
            raise ValueError(
                f"{len(lengths)} episodes of {lengths} steps need a gain over the reference for "
                f"each step, got {[len(gains) for gains in self.gains]}"
            )
        for gains in self.gains:
            check_numbers(np.asarray(gains, np.float64), name="gain over the reference")
        if self.settings.pairs == "steps":
            found = paired_steps(step_rewards, self.choices, self.settings)
        else:
            returns = [fsum(rewards.tolist()) for rewards in step_rewards]
            found = [(Side(a), Side(b)) for a, b in paired(returns, self.settings)]
        return [
            Pair(chosen, rejected, self.settings.beta * (self._gain(chosen) - self._gain(rejected)))
            for chosen, rejected in found
        ]

    def _gain(self, side: Side) -> float:
        gains = self.gains[side.episode]
        return fsum(gains) if side.step is None else gains[side.step]


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


def paired_steps(
    step_rewards: Sequence[Sequence[float] | FloatArray],
    choices: Sequence[Sequence[Choice]],
    settings: PreferenceSettings,
) -> list[tuple[Side, Side]]:
    """The chosen and the rejected step of each pair, states in the order that they are met first.

    The first step that took an action stands for it.

    Args:
        step_rewards: Of each step of a task's episodes.
        choices: Of the same steps.
        settings: Which pairs.
    """
    rewards = [np.asarray(of_episode, np.float64) for of_episode in step_rewards]
    worth = returns_to_go(rewards, discount=1.0)
    states: dict[str, dict[str, list[Side]]] = {}
    for episode, of_episode in enumerate(choices):
        for step, (state, action) in enumerate(of_episode):
            if state:
                states.setdefault(state, {}).setdefault(action, []).append(Side(episode, step))
    found: list[tuple[Side, Side]] = []
    for actions in states.values():
        sides = [*actions.values()]
        means = [fsum(worth[e][s or 0] for e, s in taken) / len(taken) for taken in sides]
        found += [(sides[a][0], sides[b][0]) for a, b in paired(means, settings)]
    return found


def pair_losses(margins: Sequence[float]) -> FloatArray:
    """`−log σ(m)` of each pair, without overflow; shape (P,)."""
    return np.logaddexp(0.0, -np.asarray(margins, np.float64))
