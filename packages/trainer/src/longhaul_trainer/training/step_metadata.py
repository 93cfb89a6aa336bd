"""What the trainer knows of the steps in a row, and of where a row belongs.

It travels beside the row through TransferQueue: one note for each step, in step order, each
with the place of its action in the row's response. Nothing here imports verl, so credit can
be worked out, and tested, without it.

Row keys in TransferQueue are `{group}_{sample_index}_{row}`, so a group's name holds no `_`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from longhaul_core.types import GroupOutcome, TaskKey

NOTES = "longhaul"
"""Our key in a row's `extra_fields`."""


class StepMetadata(NamedTuple):
    """What the trainer must know about a step, and where it is in its row."""

    environment: str
    """Of its task, like `task_id`."""
    task_id: str
    training_step: int
    """That played the episode."""
    group_index: int
    """0-based place of the task among those that the training step played."""
    policy_version: int
    """Optimizer steps behind the oldest weights that sampled a token of the reply."""
    sample_index: int
    """0-based place of the episode in its group."""
    retry: int
    """How many tries of this episode failed before."""
    horizon: int
    """Longest that the episode could be, in steps."""
    step: int
    num_steps: int
    reward: float
    """The environment's."""
    action_valid: bool
    anchor: str
    success: bool
    episode_return: float
    prompt_tokens: int
    action_tokens: int
    start: int
    """0-based place, in the row's response, of the action's first token."""
    split_reason: str | None
    """`SplitReason` value of the step that begins a row; None for those that continue it."""
    truncated: bool = False
    """Whether a limit cut the episode short."""
    final_anchor: str = ""
    """Anchor state seen after the episode's last step, whose note alone has it."""
    greedy: bool = False
    """Of the greedy episode that is the baseline of its group, and not trained."""
    hook_reward: float | None = None
    """What `algorithm.reward_shaping` gives the step; None without such a function."""
    hook_error: str = ""
    """Why it gave nothing; the trainer ends the run by it."""
    reference_kl: float = 0.0
    """Estimated divergence from the starting model, summed over the reply's tokens; known, and
    not 0, only where it is part of the reward and the learner has read the row."""

    @property
    def stop(self) -> int:
        """Place after the action's last token."""
        return self.start + self.action_tokens


Episode = tuple[str, int]
"""Group and sample_index."""

RowMetadata = Mapping[str, Sequence[StepMetadata]]
"""Row key → notes of the row's steps, in step order."""


class GroupName(NamedTuple):
    """What a group is called among the rows; sorts in the order that groups were asked for."""

    training_step: int
    """That plays it."""
    group_index: int
    """0-based place among the groups of that training step."""

    def __str__(self) -> str:
        return f"train-{self.training_step}-{self.group_index}"

    @classmethod
    def parse(cls, name: str) -> GroupName:
        """Read a group's name."""
        _, training_step, group_index = name.split("-")
        return cls(int(training_step), int(group_index))


class RowKey(NamedTuple):
    """Where a row belongs, as its key says."""

    group: str
    sample_index: int
    row: int
    """0-based place of the row in its episode."""

    @classmethod
    def parse(cls, key: str) -> RowKey:
        """Read a TransferQueue key."""
        group, sample_index, row = key.split("_")
        return cls(group, int(sample_index), int(row))


def written(notes: Sequence[StepMetadata]) -> list[dict[str, Any]]:
    """Notes as a row's `extra_fields` carry them under `NOTES`."""
    return [note._asdict() for note in notes]


def read_notes(extra_fields: Sequence[dict[str, Any]]) -> list[tuple[StepMetadata, ...]]:
    """The notes of rows, in the order given."""
    return [tuple(StepMetadata(**note) for note in fields[NOTES]) for fields in extra_fields]


def without_final(
    notes: RowMetadata,
) -> tuple[dict[str, Sequence[StepMetadata]], dict[Episode, str]]:
    """The rows of steps, and the row of each truncated episode's final observation.

    The latter has no step: it is there for the critic alone.

    Returns:
        Row key → notes of rows with steps; episode → key of the row of its final observation.
    """
    finals = {RowKey.parse(key)[:2]: key for key, row in notes.items() if not row}
    return {key: row for key, row in notes.items() if row}, finals


def without_greedy(
    notes: RowMetadata,
) -> tuple[dict[str, Sequence[StepMetadata]], dict[str, tuple[StepMetadata, ...]]]:
    """The rows of sampled episodes, and the steps of each group's greedy one.

    Returns:
        Row key → notes of what was sampled; group → notes of its greedy episode, in step order.
        A group whose greedy episode failed is not among the latter.
    """
    greedy: dict[str, list[StepMetadata]] = defaultdict(list)
    for key, row in notes.items():
        greedy[RowKey.parse(key).group] += [note for note in row if note.greedy]
    sampled = {key: row for key, row in notes.items() if not any(note.greedy for note in row)}
    return sampled, {
        group: tuple(sorted(steps, key=lambda note: note.step))
        for group, steps in greedy.items()
        if steps
    }


def last_steps(notes: RowMetadata) -> Iterator[StepMetadata]:
    """The note of each episode's last step."""
    for row in notes.values():
        if row[-1].step == row[-1].num_steps - 1:
            yield row[-1]


def group_outcomes(notes: RowMetadata) -> list[GroupOutcome]:
    """How often each group solved its task, in the order of the group's first row.

    Args:
        notes: Of all rows, padding rows not among them; failed episodes have no row.
    """
    groups: dict[str, list[StepMetadata]] = defaultdict(list)
    for key, row in notes.items():
        groups[RowKey.parse(key).group] += last_steps({key: row})
    return [
        GroupOutcome(
            task=TaskKey(episodes[0].environment, episodes[0].task_id),
            horizon=episodes[0].horizon,
            num_successes=sum(note.success for note in episodes),
            num_episodes=len(episodes),
        )
        for episodes in groups.values()
    ]
