"""Tests for `longhaul_trainer.training.spans`: actions into a response, and out of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.training.spans import FloatArray, action_numbers, in_response, of_action
from longhaul_trainer.training.step_metadata import StepMetadata


def note(start: int, tokens: int, *, step: int = 0) -> StepMetadata:
    return StepMetadata(
        environment="fakes/Counting-v0",
        task_id="task",
        training_step=3,
        group_index=0,
        policy_version=0,
        sample_index=0,
        retry=0,
        horizon=20,
        step=step,
        num_steps=9,
        reward=0.0,
        action_valid=True,
        anchor="",
        success=False,
        episode_return=0.0,
        prompt_tokens=1,
        action_tokens=tokens,
        start=start,
        split_reason=None,
    )


def array(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)


def test_each_action_has_its_values_in_its_place_and_gaps_have_zeros() -> None:
    notes = [note(0, 2), note(5, 1, step=1), note(6, 3, step=2)]

    found = in_response(notes, [array(1, 2), array(3), array(4, 5, 6)], num_tokens=9)

    assert found.tolist() == [1, 2, 0, 0, 0, 3, 4, 5, 6]


def test_a_row_of_no_step_is_all_zeros() -> None:
    assert in_response([], [], num_tokens=1).tolist() == [0]


@pytest.mark.parametrize(
    ("notes", "values", "problem"),
    [
        ([note(0, 2)], [array(1.0)], "step 0 has 2 action tokens, got values of shape (1,)"),
        (
            [note(0, 2), note(1, 1, step=1)],
            [array(1, 1), array(1)],
            "one before it, which ends at 2",
        ),
        ([note(2, 2)], [array(1, 1)], "step 0 at 2 to 4 is not between"),
    ],
)
def test_values_and_places_that_do_not_fit_are_refused(
    notes: list[StepMetadata], values: list[FloatArray], problem: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        in_response(notes, values, num_tokens=3)

    assert problem in str(refusal.value)


def test_an_action_beyond_its_response_is_refused() -> None:
    with pytest.raises(ValueError, match=r"of step 0 ends at 4, and its row.s response at 3"):
        of_action(note(2, 2), torch.zeros(3))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=6))
def test_what_is_put_into_a_response_comes_out_of_it(
    gaps_and_lengths: list[tuple[int, int]],
) -> None:
    notes: list[StepMetadata] = []
    for step, (gap, length) in enumerate(gaps_and_lengths):
        start = notes[-1].stop + gap if notes else 0
        notes.append(note(start, length, step=step))
    values = [
        array(*(100.0 * n.step + place for place in range(1, n.action_tokens + 1))) for n in notes
    ]
    num_tokens = notes[-1].stop

    response_T = torch.from_numpy(in_response(notes, values, num_tokens=num_tokens))
    numbers_T = action_numbers([notes], num_tokens=num_tokens)[0]

    for each, expected in zip(notes, values, strict=True):
        assert of_action(each, response_T).tolist() == expected.tolist()
        assert of_action(each, numbers_T).tolist() == [each.step] * each.action_tokens
    assert float(response_T.sum()) == sum(v.sum() for v in values)  # and nothing else


def test_a_gap_belongs_to_the_action_before_it_and_padding_to_the_last_one() -> None:
    rows = [[note(0, 2), note(4, 1, step=1)], [note(0, 3)]]

    assert action_numbers(rows, num_tokens=6).tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]


def test_a_row_that_only_fills_up_may_be_shorter_than_its_notes_say() -> None:
    assert action_numbers([[note(0, 2), note(4, 1, step=1)]], num_tokens=1).tolist() == [[0]]
