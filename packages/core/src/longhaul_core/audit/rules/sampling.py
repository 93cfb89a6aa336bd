"""Rules about which groups an update takes, where more may be played than it needs."""

from longhaul_core.audit.evidence import Evidence
from longhaul_core.audit.report import Tally
from longhaul_core.audit.rules.base import Rules
from longhaul_core.store.queries import GroupNumbers

__all__ = ["RULES"]

RULES = Rules()

TAKEN = "taken"
WAITING = "waiting"
LEFT_OUT = ("no_signal", "too_small")
"""Reasons of groups that are replaced by further ones."""
RETURN_ROUNDING = 1e-9
"""Returns that differ by less, relatively to the largest or absolutely, are equal."""


def _fate(group: GroupNumbers) -> str:
    if group.update_index is not None:
        return TAKEN
    return WAITING if group.discard_reason is None else group.discard_reason


def _fates(evidence: Evidence, group: GroupNumbers) -> tuple[str, ...]:
    """What may become of a group, by its episodes alone."""
    ahead = evidence.intent.plays_ahead
    if group.num_stopped:
        return ("stopped_early",)
    undecided = (WAITING, "stale") if ahead else ()
    if group.num_ended < evidence.intent.smallest_group:
        return ("too_small", *undecided)
    if evidence.intent.dynamic_sampling and _equal(group.least_return, group.greatest_return):
        return ("no_signal", *undecided)
    return (TAKEN, WAITING, "stale") if ahead else (TAKEN, WAITING, "surplus", "stale")


def _equal(least: float | None, greatest: float | None) -> bool:
    if least is None or greatest is None:
        return True
    return greatest - least <= RETURN_ROUNDING * max(1.0, abs(least), abs(greatest))


@RULES.add("group_fate", "groups are taken if they can be learned from, the oldest first")
def check_fates(evidence: Evidence, tally: Tally) -> None:
    """A group is taken if it can be learned from and the update has a place for it.

    In asynchronous rollout the store does not hold which groups were whole when an update began,
    so it is not checked which of them had a place.
    """
    if not evidence.intent.chooses:
        return
    taken_here = [
        group.group_index
        for group in evidence.played
        if group.update_index is not None and group.resolved_training_step == evidence.training_step
    ]
    full = len(evidence.groups) >= evidence.intent.tasks_per_training_step
    for group in evidence.played:
        tally.checked()
        fate, allowed = _fate(group), _fates(evidence, group)
        expected = ""
        if fate not in allowed:
            expected = " or ".join(allowed)
        elif fate == "stopped_early" and not evidence.intent.extra_tasks:
            expected = "played to its end: sampling.extra_tasks = 0"
        elif (
            TAKEN in allowed
            and group.group_index not in taken_here
            and not evidence.intent.plays_ahead
        ):
            if not full:
                expected = (
                    f"taken: the update has {len(evidence.groups)} groups of "
                    f"{evidence.intent.tasks_per_training_step}"
                )
            elif any(group.group_index < index for index in taken_here):
                expected = "taken before groups that were requested later"
        if expected:
            tally.found(
                f"group {group.group_index}: {fate}", group.first_episode_id, expected=expected
            )


@RULES.add("refills", "an update is full, or the refills are used up")
def check_refills(evidence: Evidence, tally: Tally) -> None:
    """Further tasks are played until the update is full or the refills are used up."""
    intent = evidence.intent
    if not intent.chooses:
        return
    tally.checked()
    needed, found = intent.tasks_per_training_step, len(evidence.groups)
    if intent.plays_ahead:
        _check_refills_ahead(evidence, tally)
        return
    indices = [group.group_index for group in evidence.played]
    if indices != list(range(len(indices))):
        tally.found(f"groups {indices}", expected=f"0 to {len(indices) - 1}")
    waves = 1 + (intent.max_refills if intent.dynamic_sampling else 0)
    most = waves * (needed + intent.extra_tasks)
    if len(indices) > most:
        tally.found(f"{len(indices)} groups played", expected=f"at most {most}")
    num_waited = found - sum(
        group.resolved_training_step == evidence.training_step and group.update_index is not None
        for group in evidence.played
    )
    fewest = needed - num_waited + waves - 1 + waves * intent.extra_tasks
    if found < needed and len(indices) < fewest:
        tally.found(
            f"an update of {found} groups after {len(indices)} were played",
            expected=f"{needed} groups, or {waves - 1} refills: at least {fewest} played",
        )


def _check_refills_ahead(evidence: Evidence, tally: Tally) -> None:
    """An update is full, or more groups were left out than could be replaced."""
    needed, found = evidence.intent.tasks_per_training_step, len(evidence.groups)
    refills = evidence.intent.max_refills * needed
    left_out = sum(group.discard_reason in LEFT_OUT for group in evidence.discarded)
    if found < needed and left_out <= refills:
        tally.found(
            f"an update of {found} groups, and {left_out} left out",
            expected=f"{needed} groups, or more left out than the {refills} that are replaced",
        )
