"""Tests for `longhaul_trainer.verl.parts`: log-probabilities of many rows, a part at a time."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


@given(share=st.integers(1, 30), num_ranks=st.integers(1, 4), rows_at_once=st.integers(1, 12))
def test_every_worker_computes_its_own_rows_in_their_order(
    share: int, num_ranks: int, rows_at_once: int
) -> None:
    from longhaul_trainer.verl.parts import parts_of

    keys = [f"{rank} {place}" for rank in range(num_ranks) for place in range(share)]
    parts = parts_of(keys, num_ranks=num_ranks, rows_at_once=rows_at_once)

    computed: dict[int, list[str]] = {rank: [] for rank in range(num_ranks)}
    for part in parts:
        size = len(part) // num_ranks
        assert 1 <= size <= rows_at_once
        for rank in range(num_ranks):  # as verl shares out the rows of a call
            computed[rank] += part[rank * size : (rank + 1) * size]
    assert [key for rank in range(num_ranks) for key in computed[rank]] == keys


@pytest.mark.parametrize("method", ["compute_log_prob", "compute_ref_log_prob"])
def test_a_group_is_asked_for_each_part_and_all_rows_come_back(method: str) -> None:
    from transfer_queue import KVBatchMeta

    from longhaul_trainer.verl.parts import InParts

    asked: list[list[str]] = []

    def compute(part: KVBatchMeta) -> None:
        asked.append(part.keys)

    group = SimpleNamespace(**{method: compute}, world_size=2)
    keys = list("abcdefgh")
    batch = KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")

    in_parts = InParts(group, num_ranks=lambda: 2, rows_at_once=3)

    assert getattr(in_parts, method)(batch) is batch
    assert asked == [list("abcefg"), list("dh")]
    assert in_parts.world_size == 2  # as everything else of the group


def test_rows_that_cannot_be_shared_out_are_refused() -> None:
    from longhaul_trainer.verl.parts import parts_of

    with pytest.raises(ValueError, match="3 rows cannot be shared out evenly among 2 workers"):
        parts_of(["a", "b", "c"], num_ranks=2, rows_at_once=8)
