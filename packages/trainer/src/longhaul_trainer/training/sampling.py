"""Which of the groups that were played are trained on: dynamic sampling and oversampling.

A group whose episodes all have the same return has no signal: DAPO leaves it out and plays further
tasks in its place. In `sync` that happens in waves, each begun when the one before is whole, so
what is played depends on the seed and the outcomes, and on no clock. In asynchronous rollout
groups are filtered one by one (`verl/filtering.py`). Oversampling starts more tasks than are
needed, and stops the unfinished ones when enough groups are whole.

Everything here is a pure function of what was played.

Source: Yu et al., 2025, DAPO, arXiv:2503.14476, section 3.2, for what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from longhaul_core.store.records import DiscardReason
from longhaul_trainer.training.step_metadata import GroupName, RowKey, Rows, episodes_in

__all__ = [
    "Decision",
    "PlayedGroup",
    "SamplingRules",
    "Unusable",
    "all_failed",
    "decide",
    "first_wave",
    "is_enough",
    "next_wave",
    "nothing_to_learn_from",
    "num_tokens",
    "played_group",
    "still_fresh",
    "without_signal",
]

Unusable = Literal["no_signal", "too_small"]
"""Why a whole group cannot be trained on: all its returns are equal, or too few episodes ended."""

RETURN_ROUNDING = 1e-9
"""Returns that differ by less, relatively to the largest or absolutely, are equal: sums of the
same rewards in another order."""


class PlayedGroup(NamedTuple):
    """A whole group: each of its places has an episode that ended, or a failure."""

    name: GroupName
    returns: tuple[float, ...]
    """Of the episodes that ended, in the environment's units, before any shaping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """How a run chooses its groups."""

    num_groups: int
    """Groups of an update, at least 1."""
    smallest_group: int
    """Fewest episodes that can be compared."""
    dynamic: bool
    """Groups without a signal are left out and replaced."""
    max_refills: int
    """Waves of further tasks in a training step, where `dynamic`."""
    extra_tasks: int
    """Tasks that each wave starts beyond what it needs."""
    max_staleness: int
    """Training steps that a group may wait; 0: none waits."""

    def unusable(self, group: PlayedGroup) -> Unusable | None:
        """Why a whole group is not trained on; None if it can be."""
        if len(group.returns) < self.smallest_group:
            return "too_small"
        if self.dynamic and without_signal(group.returns):
            return "no_signal"
        return None


class Decision(NamedTuple):
    """What a training step does with the groups there are."""

    taken: tuple[GroupName, ...]
    """For its update, in the order of the update."""
    thrown_away: Mapping[GroupName, DiscardReason]
    """And why."""
    waiting: tuple[GroupName, ...]
    """For the next training step."""


def without_signal(returns: Sequence[float]) -> bool:
    """Whether all of the returns are equal.

    Args:
        returns: Of a group's episodes, at least one.
    """
    scale = max(1.0, *map(abs, returns))
    return max(returns) - min(returns) <= RETURN_ROUNDING * scale


def still_fresh(
    rules: SamplingRules, waiting: Collection[GroupName], *, training_step: int
) -> tuple[GroupName, ...]:
    """Waiting groups that the update of `training_step` may take, the oldest first."""
    return tuple(
        name
        for name in sorted(waiting)
        if training_step - name.training_step <= rules.max_staleness
    )


def first_wave(rules: SamplingRules, *, num_waiting: int) -> int:
    """Tasks that a training step begins with; 0 if enough groups wait for it."""
    missing = rules.num_groups - num_waiting
    return missing + rules.extra_tasks if missing > 0 else 0


def next_wave(
    rules: SamplingRules, *, num_waiting: int, played: Sequence[PlayedGroup], num_refills: int
) -> int:
    """Further tasks to play now that all of `played` are whole; 0 if no more are.

    As many as should give the missing groups, if the share with a signal stays what it was:
    `missing * (played + 2) / (with signal + 1)`, at most as many as an update takes.

    Args:
        rules: Of the run.
        num_waiting: Groups of earlier training steps that are `still_fresh`.
        played: Groups of this training step.
        num_refills: Waves of further tasks there were in this training step.
    """
    usable = sum(rules.unusable(group) is None for group in played)
    missing = rules.num_groups - num_waiting - usable
    if missing <= 0 or not rules.dynamic or num_refills >= rules.max_refills:
        return 0
    expected = math.ceil(missing * (len(played) + 2) / (usable + 1))
    return min(expected, rules.num_groups) + rules.extra_tasks


def is_enough(rules: SamplingRules, *, num_waiting: int, played: Collection[PlayedGroup]) -> bool:
    """Whether an update is full already."""
    usable = sum(rules.unusable(group) is None for group in played)
    return num_waiting + usable >= rules.num_groups


def decide(
    rules: SamplingRules,
    *,
    training_step: int,
    waiting: Collection[GroupName],
    played: Collection[PlayedGroup],
    stopped: Collection[GroupName],
) -> Decision:
    """Take groups for the update of `training_step`, the oldest first.

    Args:
        rules: Of the run.
        training_step: Whose update it is.
        waiting: Usable groups of earlier training steps.
        played: Whole groups of this training step.
        stopped: Groups of this training step that are not whole, since they were stopped.
    """
    usable = list(still_fresh(rules, waiting, training_step=training_step))
    thrown_away: dict[GroupName, DiscardReason] = dict.fromkeys(stopped, "stopped_early")
    thrown_away |= dict.fromkeys(set(waiting) - set(usable), "stale")
    for group in played:
        reason = rules.unusable(group)
        if reason is None:
            usable.append(group.name)
        else:
            thrown_away[group.name] = reason
    usable.sort()
    taken, left = usable[: rules.num_groups], usable[rules.num_groups :]
    if rules.max_staleness == 0:
        thrown_away |= dict.fromkeys(left, "surplus")
        left = []
    return Decision(
        taken=tuple(taken),
        thrown_away=dict(sorted(thrown_away.items())),
        waiting=tuple(left),
    )


def num_tokens(rows: Rows) -> int:
    """Tokens that the engine read and wrote in the episodes whose rows these are."""
    played = [episode for episode in episodes_in(rows) if not episode.demonstration]
    steps = [step for episode in played for step in episode.steps]
    return sum(step.prompt_tokens + step.action_tokens for step in steps)


def played_group(name: GroupName, rows: Rows) -> PlayedGroup:
    """A whole group, from its rows; failed episodes have none."""
    returns = {
        RowKey.parse(key).sample_index: row.episode.episode_return
        for key, row in rows.items()
        if row.episode is not None and not row.demonstration
    }
    return PlayedGroup(name, tuple(returns[sample_index] for sample_index in sorted(returns)))


def all_failed(training_step: int, *, smallest_group: int, beside: str = "") -> str:
    """Why the run ends in a training step that no group came out of whole enough.

    Args:
        training_step: Which.
        smallest_group: Fewest episodes that can be compared.
        beside: What a group needs besides, in words.
    """
    enough = {1: "an episode", 2: "two episodes"}.get(smallest_group, f"{smallest_group} episodes")
    return (
        f"training step {training_step}: no task has {enough}{beside} that did not fail; "
        f"ask the store why: SELECT cause, message, count(*) FROM failures GROUP BY 1, 2"
    )


def nothing_to_learn_from(
    training_step: int, played: Sequence[PlayedGroup], *, smallest_group: int
) -> str:
    """Why the run ends in a training step whose update has no group.

    Args:
        training_step: Which.
        played: Groups that were looked at for it.
        smallest_group: Fewest episodes that can be compared.
    """
    if not any(len(group.returns) >= smallest_group for group in played):
        return all_failed(training_step, smallest_group=smallest_group)
    return (
        f"training step {training_step}: in none of {len(played)} groups did the returns differ, "
        f"and sampling.max_refills is used up; the tasks are too easy or too hard for the policy, "
        'or it has collapsed: look at the returns, take other tasks (tasks.order = "difficulty"), '
        "raise rollout.temperature or rollout.group_size, or say sampling.dynamic = false"
    )
