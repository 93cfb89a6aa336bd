"""Tests for `longhaul_trainer.training.step_metadata`: from rows to the outcome of each group."""

from longhaul_core.types import GroupOutcome, TaskKey
from longhaul_trainer.training.step_metadata import (
    NOTES,
    StepMetadata,
    group_outcomes,
    read_notes,
    written,
)


def episode(
    group: str, sample_index: int, *, solved: bool, num_steps: int = 2
) -> dict[str, tuple[StepMetadata, ...]]:
    return {
        f"{group}_{sample_index}_{step}": (
            StepMetadata(
                environment="fakes/Counting-v0",
                task_id=f"task of {group}",
                training_step=3,
                group_index=0,
                policy_version=0,
                sample_index=sample_index,
                retry=0,
                horizon=6,
                step=step,
                num_steps=num_steps,
                reward=0.0,
                action_valid=True,
                anchor="",
                success=solved,
                episode_return=0.0,
                prompt_tokens=1,
                action_tokens=1,
                start=0,
                split_reason="one_row_per_step",
            ),
        )
        for step in range(num_steps)
    }


def test_episodes_are_counted_and_rows_are_not() -> None:
    notes = (
        episode("train-3-0", 0, solved=True, num_steps=5)
        | episode("train-3-0", 1, solved=False, num_steps=1)
        | episode("train-3-0", 3, solved=False)  # the one at 2 failed and has no row
        | episode("train-3-1", 0, solved=True)
    )

    assert group_outcomes(notes) == [
        GroupOutcome(
            task=TaskKey("fakes/Counting-v0", "task of train-3-0"),
            horizon=6,
            num_successes=1,
            num_episodes=3,
        ),
        GroupOutcome(
            task=TaskKey("fakes/Counting-v0", "task of train-3-1"),
            horizon=6,
            num_successes=1,
            num_episodes=1,
        ),
    ]


def test_groups_of_two_training_steps_are_two_groups_even_at_the_same_place() -> None:
    notes = episode("train-3-0", 0, solved=True) | episode("train-4-0", 0, solved=False)

    assert [one.num_successes for one in group_outcomes(notes)] == [1, 0]


def test_an_episode_counts_once_where_its_steps_are_one_row_or_two() -> None:
    steps = [row[0] for row in episode("train-3-0", 0, solved=True, num_steps=3).values()]
    notes = {"train-3-0_0_0": tuple(steps[:2]), "train-3-0_0_1": tuple(steps[2:])}

    (outcome,) = group_outcomes(notes)

    assert (outcome.num_successes, outcome.num_episodes) == (1, 1)


def test_notes_come_back_from_a_row_as_they_were_put_into_it() -> None:
    steps = tuple(row[0] for row in episode("train-3-0", 0, solved=True).values())

    assert read_notes([{NOTES: written(steps), "other": 1}, {NOTES: written(steps[:1])}]) == [
        steps,
        steps[:1],
    ]


def test_no_rows_are_no_groups() -> None:
    assert group_outcomes({}) == []
