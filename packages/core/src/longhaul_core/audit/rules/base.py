"""What a rule is, and comparisons that several of them make."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from longhaul_core.audit.evidence import AuditedEpisode, Evidence
from longhaul_core.audit.report import Tally
from longhaul_core.audit.tables import StepNumbers

__all__ = ["FLOAT32", "Check", "Rule", "Rules", "each_step", "far", "signs_of_training"]

FLOAT32 = 1e-6
"""Relative rounding of what is kept, or read by the loss, in float32."""

Check = Callable[[Evidence, Tally], None]
"""Holds one training step to a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Something that is true of a run that trains what it means to train."""

    name: str
    claim: str
    """What is true, in a few words."""
    check: Check


class Rules(list[Rule]):
    """The rules of a module, in the order that a report lists them."""

    def add(self, name: str, claim: str) -> Callable[[Check], Check]:
        """Make a rule of the check that is decorated; see `Rule`."""

        def added(check: Check) -> Check:
            self.append(Rule(name=name, claim=claim, check=check))
            return check

        return added


def far(found: float | None, expected: float, rounding: float) -> bool:
    """Whether a number is missing, or farther from `expected` than by float32 and `rounding`."""
    return found is None or not abs(found - expected) <= rounding + FLOAT32 * abs(expected)


def each_step(
    stored: Callable[[StepNumbers], float | None],
    expected: Callable[[Evidence, Tally], Iterable[tuple[AuditedEpisode, Sequence[float]]]],
    rounding: Callable[[Evidence], float] = lambda evidence: evidence.rounding,
) -> Check:
    """A check that a number of each step is the one that is defined.

    Args:
        stored: The number of a step.
        expected: Episodes, each with the defined numbers of its steps. It tallies what it skips.
        rounding: How far the two may be apart, beyond the rounding of float32.
    """

    def check(evidence: Evidence, tally: Tally) -> None:
        for episode, numbers in expected(evidence, tally):
            tally.checked(len(episode.steps))
            for step, number in zip(episode.steps, numbers, strict=True):
                if far(stored(step), number, rounding(evidence)):
                    tally.found(stored(step), step.episode_id, step.step_index, expected=number)

    return check


def signs_of_training(episode: AuditedEpisode, *, ended: bool) -> list[str]:
    """Results of an episode that was not to be trained, and has them all the same.

    Args:
        episode: Which.
        ended: Whether it may have a return.
    """
    signs = (
        ("trained", episode.numbers.trained),
        ("a return", not ended and episode.numbers.episode_return is not None),
        ("an advantage", episode.numbers.episode_advantage is not None),
        ("a trained step", any(step.trained for step in episode.steps)),
        ("a step's advantage", any(step.advantage is not None for step in episode.steps)),
    )
    return [sign for sign, there in signs if there]
