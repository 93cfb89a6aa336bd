"""The judgement of a run's credit: what estimators gave the measured steps, against Q - V."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy.orm import Session

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings
from longhaul_core.store import queries
from longhaul_core.store.queries import ContinuedStep, GroupId
from longhaul_core.truth import (
    SampledAdvantage,
    compare_gradients,
    planted_right,
    planted_wrong,
    sampled_advantage,
    score_against_truth,
    shuffled,
)
from longhaul_core.truth.judging import BoolArray, GroupAdvantages
from longhaul_core.truth.tables import Figures, figures_by_chance, figures_of, range_of
from longhaul_trainer.play.truth.continuations import Stored
from longhaul_trainer.play.truth.selection import Place, Selection

if TYPE_CHECKING:
    from longhaul_trainer.play.truth.gradients import Gradients

__all__ = ["Report", "Truth", "report_of", "sampled_steps"]

AS_TRAINED = "as trained"
RIGHT, WRONG, SHUFFLED = "*planted right*", "*planted wrong*", "*shuffled truth*"
HALVES = "*half of the continuations*"
NUM_SHUFFLES = 100
NUM_SHUFFLED_GRADIENTS = 20
"""Each is a pass over all measured replies."""
COSINE, VARIANCE = "gradient cosine", "gradient variance"

Truth = Mapping[Place, SampledAdvantage]
Advantages = list[list[FloatArray]]
"""Of each episode of each group; NaN where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Each estimator against the truth of the measured steps."""

    steps: Truth
    """Where it is known."""
    num_undefined: int
    """Measured steps without it."""
    rows: Mapping[str, Figures]
    """Figures by estimator, then by control."""
    missing: Mapping[str, Mapping[str, int]]
    """By estimator, why it could not be computed, and of how many groups."""

    @property
    def num_with_effect(self) -> int:
        """Steps whose interval of Q - V leaves out 0."""
        return sum(step.has_effect for step in self.steps.values())


def report_of(
    session: Session,
    selection: Selection,
    steps: Truth,
    *,
    halves: tuple[Truth, Truth] | None = None,
    further: Mapping[str, Mapping[Place, float]] | None = None,
    gradients: "Gradients | None" = None,
) -> Report:
    """Judge every built-in estimator, the run's own credit, and the controls.

    Args:
        session: Only read from.
        selection: Which steps are measured, of which groups.
        steps: What they were worth.
        halves: The same by each half of their continuations, where it is sampled.
        further: Other credit of these steps, by name.
        gradients: Of small weights; without them no gradients are compared.
    """
    judged = _Judged(session, selection.groups, steps, gradients)
    for group in selection.groups:
        judged.read(group)
    judged.add(further or {})
    return Report(
        steps=steps,
        num_undefined=len(selection.steps) - len(steps),
        rows=judged.rows(halves) if steps else {},
        missing=judged.missing,
    )


def sampled_steps(
    selection: Selection, stored: Stored, *, part: int | None = None
) -> dict[Place, SampledAdvantage]:
    """The truth of measured steps by sampling, where both sets have a continuation that ended.

    Args:
        selection: Which steps.
        stored: The returns of their continuations.
        part: Of those whose `sample_index` is even (0) or odd (1); None means of all.
    """
    found: dict[Place, SampledAdvantage] = {}
    for step in selection.steps:
        place = step.episode_id, step.step_index
        choice, taken = (
            [
                each
                for sample, each in stored.get(ContinuedStep(*place, takes), {}).items()
                if part is None or sample % 2 == part
            ]
            for takes in (False, True)
        )
        if choice and taken:
            found[place] = sampled_advantage(choice, taken)
    return found


class _Judged:
    """Credit by estimator, group after group."""

    def __init__(
        self,
        session: Session,
        groups: Sequence[GroupId],
        steps: Truth,
        gradients: "Gradients | None",
    ) -> None:
        self._session = session
        self._steps = steps
        self._gradients = gradients
        self._episodes: list[list[tuple[str, int]]] = []
        """Of each group, the episodes that ended, with their numbers of steps."""
        self._credit: dict[str, dict[Place, float]] = {
            name: {} for name in (AS_TRAINED, *_FURTHER, *ESTIMATORS)
        }
        self.missing: dict[str, Counter[str]] = {}

    def read(self, group: GroupId) -> None:
        """What the group's steps were credited with, and what each estimator gives them."""
        played = queries.group_steps(self._session, group)
        ended = [each for each in played.episodes if not each.summary.failed]
        self._episodes.append([(one.summary.episode_id, len(one.steps)) for one in ended])
        self._credit[AS_TRAINED] |= {
            (one.summary.episode_id, step.step_index): step.advantage
            for one in ended
            for step in one.steps
            if step.advantage is not None
        }
        found = queries.advantages_by_estimator(self._session, group, further=_FURTHER)
        for each in found.estimators:
            if each.missing is not None:
                self.missing.setdefault(each.estimator, Counter())[each.missing] += 1
            self._credit[each.estimator] |= {
                (episode.episode_id, step): advantage
                for episode in each.episodes
                for step, advantage in enumerate(episode.advantages)
            }

    def add(self, further: Mapping[str, Mapping[Place, float]]) -> None:
        """Credit that no estimator gives."""
        self._credit |= {name: dict(credit) for name, credit in further.items()}

    def rows(self, halves: tuple[Truth, Truth] | None) -> dict[str, Figures]:
        """Of each estimator that was computed for a group, and of the controls."""
        truth = self._arrays(_advantages(self._steps))
        effects = self._effects(self._steps)
        rows = {name: self._arrays(credit) for name, credit in self._credit.items() if credit}
        rows |= {RIGHT: planted_right(truth), WRONG: planted_wrong(truth)}
        gradients_of = self._gradients_by(truth)
        judged = {
            name: figures_of(score_against_truth(credit, truth, effects=effects))
            | gradients_of(credit)
            for name, credit in rows.items()
        }
        judged[SHUFFLED] = figures_by_chance(
            truth, num_shuffles=NUM_SHUFFLES, effects=effects
        ) | self._gradients_by_chance(truth, gradients_of)
        if halves is not None:
            one, other = (self._arrays(_advantages(half)) for half in halves)
            effects = self._effects(halves[1])
            judged[HALVES] = figures_of(
                score_against_truth(one, other, effects=effects)
            ) | self._gradients_by(other)(one)
        return judged

    def _gradients_by_chance(
        self,
        truth: Sequence[GroupAdvantages],
        gradients_of: Callable[[Sequence[GroupAdvantages]], Figures],
    ) -> Figures:
        """The mean over shuffles, and the range that holds 95 % of them."""
        if self._gradients is None:
            return {}
        of_each = [
            gradients_of(shuffled(truth, seed=seed)) for seed in range(NUM_SHUFFLED_GRADIENTS)
        ]
        return {
            column: range_of([figures[column] for figures in of_each])
            for column in (COSINE, VARIANCE)
        }

    def _gradients_by(
        self, truth: Sequence[GroupAdvantages]
    ) -> Callable[[Sequence[GroupAdvantages]], Figures]:
        """Compares the gradient of a credit with that of a truth; no figures without weights."""
        if self._gradients is None:
            return lambda credit: {}
        of_groups = self._gradients
        truth_GP = of_groups(self._of_known_steps(truth, truth))

        def figures(credit: Sequence[GroupAdvantages]) -> Figures:
            credit_GP = of_groups(self._of_known_steps(credit, truth))
            found = compare_gradients(credit_GP, truth_GP)
            return {COSINE: found.cosine, VARIANCE: found.variance}

        return figures

    def _of_known_steps(
        self, credit: Sequence[GroupAdvantages], truth: Sequence[GroupAdvantages]
    ) -> list[dict[Place, float]]:
        """The credit of each group's steps whose truth is known."""
        return [
            {
                (episode, step): float(credit_N[step])
                for (episode, _), credit_N, truth_N in zip(episodes, *of_group, strict=True)
                for step in np.flatnonzero(~np.isnan(truth_N) & ~np.isnan(credit_N)).tolist()
            }
            for episodes, *of_group in zip(self._episodes, credit, truth, strict=True)
        ]

    def _arrays(self, values: Mapping[Place, float]) -> Advantages:
        return [
            [
                np.array([values.get((episode, step), np.nan) for step in range(number)])
                for episode, number in group
            ]
            for group in self._episodes
        ]

    def _effects(self, steps: Truth) -> list[list[BoolArray]]:
        return [
            [
                np.array(
                    [
                        (found := steps.get((episode, step))) is not None and found.has_effect
                        for step in range(number)
                    ]
                )
                for episode, number in group
            ]
            for group in self._episodes
        ]


def _advantages(steps: Truth) -> dict[Place, float]:
    return {place: found.advantage.estimate for place, found in steps.items()}


def _at_lambda_0(groups: Sequence[Group], settings: EstimatorSettings) -> list[GroupCredit]:
    gae = settings.model_copy(update={"name": "gae", "gae_lambda": 0.0})
    return list(ESTIMATORS["gae"].compute(groups, gae))


_FURTHER: Mapping[str, Estimator] = {
    "gae, λ = 0": replace(
        ESTIMATORS["gae"], compute=_at_lambda_0, summary="the critic's values, one step ahead"
    )
}
