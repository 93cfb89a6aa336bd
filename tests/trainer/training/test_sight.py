"""Pictures that change places, and what that does to log-probabilities."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from longhaul_trainer.training.sight import GRIDS, PATCHES, mean_change, with_other_pictures

Shown = tuple[tuple[int, int, int], float]
"""Size of a picture, and the number that all its patches hold."""
SMALL, WIDE = (1, 2, 2), (1, 2, 4)


def row(*shown: Shown) -> dict[str, Any]:
    """What a model of two numbers a patch reads of these pictures."""
    if not shown:
        return {}
    patches = [torch.full((time * height * width, 2), v) for (time, height, width), v in shown]
    return {
        PATCHES: torch.cat(patches),
        GRIDS: torch.tensor([size for size, _ in shown]),
        "images_seqlens": torch.tensor([8] * len(shown)),
    }


def found(rows: Sequence[dict[str, Any]]) -> list[list[float] | None]:
    """The first number of each picture's patches after the exchange; None for a row as it was."""
    changed = with_other_pictures(rows)
    return [
        None
        if after is None
        else [
            float(part[0, 0])
            for part in after[PATCHES].split(before[GRIDS].prod(dim=1).tolist())
            if part.eq(part[0, 0]).all()
        ]
        for before, after in zip(rows, changed, strict=True)
    ]


def test_a_picture_gives_its_place_to_the_one_of_its_size_that_differs_most() -> None:
    """Of 1, 2, 4, 8; the wide one is the only one of its size."""
    rows = [row((SMALL, 1.0), (SMALL, 2.0)), row((WIDE, 9.0), (SMALL, 8.0)), row((SMALL, 4.0))]

    assert found(rows) == [[8.0, 8.0], [9.0, 1.0], [8.0]]


def test_pictures_of_equal_means_still_change_places() -> None:
    striped = torch.tensor([[0.0, 2.0]] * 4)
    rows = [row((SMALL, 1.0)), {PATCHES: striped, GRIDS: torch.tensor([SMALL])}]

    first, second = with_other_pictures(rows)
    assert first is not None
    assert second is not None
    assert torch.equal(first[PATCHES], striped)
    assert torch.equal(second[PATCHES], rows[0][PATCHES])


def test_a_picture_that_is_shown_again_is_one_picture() -> None:
    assert found([row((SMALL, 1.0)), row((SMALL, 1.0)), row((SMALL, 2.0))]) == [[2.0], [2.0], [1.0]]


def test_a_row_without_another_picture_of_its_sizes_stays() -> None:
    pair = [row((SMALL, 1.0)), row((SMALL, 2.0))]

    assert found([*pair, row(), row((WIDE, 1.0))]) == [[2.0], [1.0], None, None]
    assert with_other_pictures([row((SMALL, 1.0)), row((SMALL, 1.0)), row()]) == [None] * 3


def test_sizes_and_all_else_of_a_row_are_as_they_were() -> None:
    rows = [row((SMALL, 1.0), (WIDE, 2.0)), row((SMALL, 5.0))]

    for before, after in zip(rows, with_other_pictures(rows), strict=True):
        assert after is not None
        assert after[PATCHES].shape == before[PATCHES].shape
        assert {k: v for k, v in after.items() if k != PATCHES} == {
            k: v for k, v in before.items() if k != PATCHES
        }
        assert not torch.equal(after[PATCHES], before[PATCHES])


def test_the_change_is_the_mean_over_tokens_of_what_each_moved() -> None:
    own = [torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-0.5])]
    other = [torch.tensor([-1.5, -1.0, -3.0]), torch.tensor([-1.0])]

    assert mean_change(own, other) == pytest.approx((0.5 + 1.0 + 0.0 + 0.5) / 4)
