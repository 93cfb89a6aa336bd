"""Tests for `longhaul_trainer.training.rank_balance`."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.training.rank_balance import imbalance, shared_out

MOST = 1.05
"""What the rank with the most tokens may have, over the mean."""


def of_merged_rows(seed: int) -> list[int]:
    """Tokens of 128 merged rows, 1,000 to 30,000; those of a task are alike and stand together."""
    draw = Random(seed)
    tasks = [draw.lognormvariate(8.7, 0.7) for _ in range(16)]
    return [
        round(min(max(of_task * draw.uniform(0.6, 1.4), 1000), 30_000))
        for of_task in tasks
        for _ in range(8)
    ]


def of_step_rows(seed: int) -> list[int]:
    """Tokens of 512 rows of one step, which grow along their episode."""
    draw = Random(seed)
    rows: list[int] = []
    while len(rows) < 512:
        first = draw.randint(200, 900)
        rows += [first + 40 * step for step in range(draw.randint(2, 50))]
    return rows[:512]


def in_order_of_ranks(row_tokens: list[int], *, num_ranks: int) -> list[int]:
    return [
        row_tokens[place]
        for places in shared_out(row_tokens, num_ranks=num_ranks)
        for place in places
    ]


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize(
    "row_tokens",
    [made(seed) for made in (of_merged_rows, of_step_rows) for seed in range(3)],
    ids=[f"{rows} rows {seed}" for rows in ("merged", "step") for seed in range(3)],
)
def test_no_rank_has_a_twentieth_more_than_the_mean_though_rows_differ_much(
    row_tokens: list[int], num_ranks: int
) -> None:
    naive = imbalance([row_tokens], num_ranks=num_ranks)
    even = imbalance([in_order_of_ranks(row_tokens, num_ranks=num_ranks)], num_ranks=num_ranks)

    assert even <= MOST
    assert naive - 1 > 2 * (even - 1)


def test_the_longest_row_goes_first_to_the_rank_that_has_least_and_has_room() -> None:
    assert shared_out([1, 9, 7, 2, 8, 1], num_ranks=2) == [[0, 1, 3], [2, 4, 5]]  # 9+2+1, 8+7+1
    assert shared_out([1, 9, 1, 1], num_ranks=2) == [[1, 3], [0, 2]]  # 1+1 is less and is full


def test_one_rank_reads_all_rows_in_their_order() -> None:
    assert shared_out([3, 9, 1], num_ranks=1) == [[0, 1, 2]]


@given(st.integers(1, 8), st.integers(1, 6), st.data())
def test_each_row_is_read_once_and_ranks_differ_by_less_than_two_rows_do(
    num_ranks: int, rows_of_a_rank: int, data: st.DataObject
) -> None:
    number = num_ranks * rows_of_a_rank
    row_tokens = data.draw(st.lists(st.integers(1, 30_000), min_size=number, max_size=number))

    ranks = shared_out(row_tokens, num_ranks=num_ranks)

    assert [len(places) for places in ranks] == [rows_of_a_rank] * num_ranks
    assert sorted(place for places in ranks for place in places) == list(range(number))
    assert shared_out(list(row_tokens), num_ranks=num_ranks) == ranks
    sums = [sum(row_tokens[place] for place in places) for places in ranks]
    assert max(sums) - min(sums) <= max(row_tokens) - min(row_tokens)


def test_the_imbalance_is_that_of_the_fullest_rank_of_each_update() -> None:
    # ranks of 5 and 3 tokens, then of 2 and 6: they are waited for for 5 + 6 of 8 tokens on average
    assert imbalance([[4, 1, 2, 1], [2, 6]], num_ranks=2) == pytest.approx(11 / 8)
    assert imbalance([[3, 3], [7, 7]], num_ranks=2) == 1.0


def test_rows_that_ranks_cannot_share_equally_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows cannot be cut into 2 equal parts"):
        shared_out([1, 2, 3], num_ranks=2)
    with pytest.raises(ValueError, match="3 rows cannot be cut into 2 equal parts"):
        imbalance([[1, 2], [1, 2, 3]], num_ranks=2)
