"""Tests for `longhaul_trainer.training.spans`: calls into a response, and out of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.training.spans import FloatArray, call_numbers, of_call
from longhaul_trainer.training.step_metadata import CallSpan
from row_metadata import in_response, span


def at(start: int, tokens: int, *, step: int = 0) -> CallSpan:
    return span(start=start, tokens=tokens, step=step)


def array(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)


def test_each_call_has_its_values_in_its_place_and_gaps_have_zeros() -> None:
    spans = [at(0, 2), at(5, 1, step=1), at(6, 3, step=2)]

    found = in_response(spans, [array(1, 2), array(3), array(4, 5, 6)], num_tokens=9)

    assert found.tolist() == [1, 2, 0, 0, 0, 3, 4, 5, 6]


def test_a_row_of_no_call_is_all_zeros() -> None:
    assert in_response([], [], num_tokens=1).tolist() == [0]


@pytest.mark.parametrize(
    ("spans", "values", "problem"),
    [
        ([at(0, 2)], [array(1.0)], "call 0 of step 0 has 2 tokens, got values of shape (1,)"),
        (
            [at(0, 2), at(1, 1, step=1)],
            [array(1, 1), array(1)],
            "one before it, which ends at 2",
        ),
        ([at(2, 2)], [array(1, 1)], "step 0 at 2 to 4 is not between"),
    ],
)
def test_values_and_places_that_do_not_fit_are_refused(
    spans: list[CallSpan], values: list[FloatArray], problem: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        in_response(spans, values, num_tokens=3)

    assert problem in str(refusal.value)


def test_a_call_beyond_its_response_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"call 0 of step 0 ends at 4, and its row.s response at 3"
    ):
        of_call(at(2, 2), torch.zeros(3))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=6))
def test_what_is_put_into_a_response_comes_out_of_it(
    gaps_and_lengths: list[tuple[int, int]],
) -> None:
    spans: list[CallSpan] = []
    for step, (gap, length) in enumerate(gaps_and_lengths):
        start = spans[-1].stop + gap if spans else 0
        spans.append(at(start, length, step=step))
    values = [
        array(*(100.0 * n.step + place for place in range(1, n.action_tokens + 1))) for n in spans
    ]
    num_tokens = spans[-1].stop

    response_T = torch.from_numpy(in_response(spans, values, num_tokens=num_tokens))
    numbers_T = call_numbers([spans], num_tokens=num_tokens)[0]

    for each, expected in zip(spans, values, strict=True):
        assert of_call(each, response_T).tolist() == expected.tolist()
        assert of_call(each, numbers_T).tolist() == [each.step] * each.action_tokens
    assert float(response_T.sum()) == sum(v.sum() for v in values)  # and nothing else


def test_a_gap_belongs_to_the_call_before_it_and_padding_to_the_last_one() -> None:
    rows = [[at(0, 2), at(4, 1, step=1)], [at(0, 3)]]

    assert call_numbers(rows, num_tokens=6).tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6]


def test_a_row_that_only_fills_up_may_be_shorter_than_its_spans_tell() -> None:
    assert call_numbers([[at(0, 2), at(4, 1, step=1)]], num_tokens=1).tolist() == [[0]]
