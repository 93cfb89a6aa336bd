"""Tests for `longhaul_trainer.verl.parts`: rows of a worker, a part at a time."""

from typing import Any

import pytest
import torch

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def rows_of(num_rows: int) -> Any:  # noqa: ANN401  tensordict is typed in part
    """Rows of different lengths, with a column of objects and a number for all."""
    from verl.utils import tensordict_utils as tu

    tokens = [torch.full((1 + row % 3,), row) for row in range(num_rows)]
    return tu.get_tensordict(
        {
            "input_ids": torch.nested.as_nested_tensor(tokens, layout=torch.jagged),
            "extra_fields": [{"row": row} for row in range(num_rows)],
        },
        non_tensor_dict={"global_batch_size": num_rows},
    )


@pytest.mark.parametrize(("num_rows", "sizes"), [(1, [1]), (4, [4]), (5, [4, 1]), (8, [4, 4])])
def test_parts_hold_every_row_once_in_its_order(num_rows: int, sizes: list[int]) -> None:
    from longhaul_trainer.verl.parts import parts_of

    parts = parts_of(rows_of(num_rows), rows_at_once=4)

    assert [len(part) for part in parts] == sizes
    found = [row.tolist() for part in parts for row in part["input_ids"].unbind(0)]
    assert found == [[row] * (1 + row % 3) for row in range(num_rows)]
    beside = [each["row"] for part in parts for each in part.get("extra_fields").tolist()]
    assert beside == list(range(num_rows))
    assert [part["global_batch_size"] for part in parts] == [num_rows] * len(sizes)


def test_positions_of_several_kinds_are_cut_along_their_tokens() -> None:
    from tensordict import TensorDict

    from longhaul_trainer.verl.parts import parts_of

    rows = [torch.arange(4 * length).reshape(4, length) for length in (2, 3, 1, 4, 2)]
    nested = torch.nested.nested_tensor_from_jagged(
        torch.cat(rows, dim=1), torch.tensor([0, 2, 5, 6, 10, 12]), jagged_dim=2
    )
    data: Any = TensorDict({"position_ids": nested}, batch_size=5)

    parts = parts_of(data, rows_at_once=2)

    found = [row for part in parts for row in part["position_ids"].unbind(0)]
    assert all(torch.equal(one, other) for one, other in zip(found, rows, strict=True))


@pytest.mark.parametrize("lengths", [(3, 3), (5,), (4,), (2, 5, 1), (8, 8), (4, 4, 4, 4)])
def test_positions_are_ragged_along_the_tokens_whatever_the_lengths(
    lengths: tuple[int, ...],
) -> None:
    from tensordict import TensorDict
    from verl.workers.engine import base

    from longhaul_trainer.verl.pictures import positions_along_tokens

    receives: Any = vars(base)["maybe_fix_3d_position_ids"]
    rows = [torch.arange(4 * length).reshape(4, length) + 100 for length in lengths]
    packed = torch.nested.as_nested_tensor(rows, layout=torch.jagged)  # as TransferQueue does
    data: Any = TensorDict({"position_ids": packed}, batch_size=len(rows))

    receives(data)

    assert receives is positions_along_tokens
    found = data["position_ids"].unbind(0)
    assert all(torch.equal(one, other) for one, other in zip(found, rows, strict=True))
