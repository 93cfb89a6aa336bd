"""Tests for `longhaul_trainer.training.step_metadata`: from rows to episodes and outcomes."""

from collections.abc import Sequence

import pytest

from longhaul_core.types import GroupOutcome
from longhaul_trainer.training.step_metadata import (
    METADATA,
    Episode,
    GroupName,
    RowMetadata,
    episodes_in,
    group_outcomes,
    packed,
    played_episodes,
    read_metadata,
)
from row_metadata import MadeUpStep, beside, rows_of, span

PLAN_AND_ACT: Sequence[MadeUpStep] = [
    {"reward": 0.0, "calls": (3, 2)},
    {"reward": 1.0, "calls": (4, 1), "trained": (False, True)},
    {"reward": 0.5, "calls": (4, 1), "trained": (False, False)},
]
"""A trained planner and actor; an actor alone; a step that is not trained."""


def episode(
    group: GroupName, sample_index: int, *, solved: bool, num_steps: int = 2
) -> dict[str, RowMetadata]:
    steps: list[MadeUpStep] = [{"reward": 0.0}] * num_steps
    return rows_of(group, sample_index, steps, success=solved, horizon=6)


def test_episodes_are_counted_and_rows_are_not() -> None:
    rows = (
        episode(GroupName(3, 0), 0, solved=True, num_steps=5)
        | episode(GroupName(3, 0), 1, solved=False, num_steps=1)
        | episode(GroupName(3, 0), 3, solved=False)  # the one at 2 failed and has no row
        | episode(GroupName(3, 1), 0, solved=True)
    )

    assert group_outcomes(episodes_in(rows)) == [
        GroupOutcome(task_id="task 0", horizon=6, num_successes=1, num_episodes=3),
        GroupOutcome(task_id="task 1", horizon=6, num_successes=1, num_episodes=1),
    ]


def test_groups_of_two_training_steps_are_two_groups_even_at_the_same_place() -> None:
    rows = episode(GroupName(3, 0), 0, solved=True) | episode(GroupName(4, 0), 0, solved=False)

    assert [one.num_successes for one in group_outcomes(episodes_in(rows))] == [1, 0]


def test_what_travels_comes_back_from_a_row_as_it_was_put_into_it() -> None:
    rows = [*episode(GroupName(3, 0), 0, solved=True).values(), beside(span(step=4, call=2))]

    assert read_metadata([{METADATA: packed(row), "other": 1} for row in rows]) == rows


def test_an_episode_is_put_together_from_its_rows_in_any_order() -> None:
    rows = rows_of(GroupName(3, 0), 1, PLAN_AND_ACT)

    found = played_episodes(dict(reversed(rows.items())))[Episode("train-3-0", 1)]

    assert [(call.span.step, call.span.call) for call in found.calls] == [(0, 0), (0, 1), (1, 1)]
    assert found.rows == tuple(rows)
    assert found.trained_tokens == (5, 1, 0)
    assert [step.reward for step in found.metadata.steps] == [0.0, 1.0, 0.5]


def test_a_row_that_is_lost_is_missed() -> None:
    rows = rows_of(GroupName(3, 0), 1, PLAN_AND_ACT)
    del rows["train-3-0_1_1"]

    with pytest.raises(
        ValueError, match=r"\(step, call\) \[\(0, 1\)\] are missing, \[\] are there"
    ):
        played_episodes(rows)


def test_a_call_that_would_be_credited_twice_is_refused() -> None:
    rows = rows_of(GroupName(3, 0), 1, PLAN_AND_ACT)
    planned = rows["train-3-0_1_0"]
    rows["train-3-0_1_3"] = beside(*planned.spans, training_step=3, sample_index=1)

    with pytest.raises(ValueError, match=r"\[\(0, 0\)\] are there too often"):
        played_episodes(rows)


def test_a_call_that_is_not_to_be_trained_is_refused() -> None:
    rows = rows_of(GroupName(3, 0), 1, PLAN_AND_ACT)
    rows["train-3-0_1_3"] = beside(span(step=1, call=0, tokens=4), training_step=3, sample_index=1)

    with pytest.raises(ValueError, match=r"\[\(1, 0\)\] are there too often"):
        played_episodes(rows)


def test_no_rows_are_no_groups() -> None:
    assert group_outcomes(episodes_in({})) == []
