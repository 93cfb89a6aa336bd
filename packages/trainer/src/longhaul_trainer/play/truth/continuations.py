"""The continuations that V and Q of many steps need, less those that the store has.

Which ones are missing follows from the store alone, so a second call plays nothing twice, and goes
on where a first one was ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from longhaul_core.rollout import Branch, EpisodeSpec
from longhaul_core.store.queries import ContinuedStep
from longhaul_core.truth import fewest_continuations, num_wanted, sampled_advantage
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.branches import continuation
from longhaul_trainer.play.truth.selection import MeasuredStep

__all__ = ["Missing", "Stored"]

Stored = Mapping[ContinuedStep, Mapping[int, float]]
"""Returns of the continuations that the store has, by what they continue and `sample_index`."""


@dataclass(kw_only=True)
class Missing:
    """Says, round after round, which continuations are still to be played."""

    config: RunConfig
    """Of the run that goes on."""
    steps: Sequence[MeasuredStep]
    half_width: float
    """Wanted of each interval, in units of the return; above 0."""
    most: int
    """Continuations of either set at most."""
    stored: Callable[[], Stored]
    """Reads the store."""
    _asked: dict[ContinuedStep, int] = field(default_factory=dict[ContinuedStep, int])
    """Continuations of each set that were asked for so far."""

    def further(self) -> list[EpisodeSpec]:
        """The next round: what each set misses; nothing once all intervals are narrow.

        The two sets of a step have disjoint seeds.
        """
        stored = self.stored()
        return [
            spec for place, step in enumerate(self.steps) for spec in self._of(place, step, stored)
        ]

    def _of(self, place: int, step: MeasuredStep, stored: Stored) -> list[EpisodeSpec]:
        sets = {_key(branch): branch for branch in (step.choice, step.taken)}
        while True:
            wanted = self._wanted(list(sets), stored)
            if all(self._asked.get(key) == number for key, number in wanted.items()):
                return []
            self._asked |= wanted
            specs = [
                continuation(
                    self.config,
                    branch,
                    sample_index=sample,
                    group_index=2 * place + key.takes_stored_action,
                    seeds="truth/taken" if key.takes_stored_action else "truth/choice",
                )
                for key, branch in sets.items()
                for sample in range(wanted[key])
                if sample not in stored.get(key, {})
            ]
            if specs:
                return specs

    def _wanted(self, sets: Sequence[ContinuedStep], stored: Stored) -> dict[ContinuedStep, int]:
        first = min(fewest_continuations(self.half_width), self.most)
        asked = {key: self._asked.get(key, 0) for key in sets}
        if not all(asked.values()):
            return dict.fromkeys(sets, first)
        choice, taken = (list(stored.get(key, {}).values()) for key in sets)
        if not choice or not taken:
            return asked  # all failed
        sampled = sampled_advantage(choice, taken)
        return {
            key: num_wanted(found, so_far=asked[key], half_width=self.half_width, most=self.most)
            for key, found in zip(sets, (sampled.value, sampled.action_value), strict=True)
        }


def _key(branch: Branch) -> ContinuedStep:
    return ContinuedStep(branch.episode_id, branch.step_index, branch.action is not None)
