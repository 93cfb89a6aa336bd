"""Whether a policy sees: how much its replies' log-probabilities move with other pictures.

Nothing here knows about verl. Shapes: P pictures of a row, N patches of all of them, D numbers of a
patch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

PATCHES = "pixel_values"
"""[N, D]: the patches of a row's pictures, by the name that transformers' processors give them."""
GRIDS = "image_grid_thw"
"""[P, 3]: patches of each picture along time, height and width."""

Size = tuple[int, ...]


def with_other_pictures(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """Rows with another picture of the same size in the place of each of theirs.

    It is the one that differs from it most, in the mean of each patch: a policy that sees may well
    answer two pictures alike, and all the more two that are nearly equal.

    Args:
        rows: What the model reads of the pictures of each; rows without pictures have neither
            `PATCHES` nor `GRIDS`.

    Returns:
        The same rows; None for one whose every picture is the only one of its size.
    """
    shown = [_pictures_of(row) for row in rows]
    sizes: dict[Size, dict[bytes, torch.Tensor]] = defaultdict(dict)
    for pictures in shown:
        for size, patches in pictures:
            sizes[size].setdefault(_bytes_of(patches), patches)
    replaced: dict[Size, dict[bytes, torch.Tensor]] = {}
    for size, of_size in sizes.items():
        if len(of_size) > 1:
            different = list(of_size.values())
            means_PN = torch.stack([patches.float().mean(dim=1) for patches in different])
            others = [different[place] for place in _farthest(means_PN)]
            replaced[size] = dict(zip(of_size, others, strict=True))
    return [
        {
            **row,
            PATCHES: torch.cat(
                [
                    replaced[size][_bytes_of(patches)] if size in replaced else patches
                    for size, patches in pictures
                ]
            ),
        }
        if any(size in replaced for size, _ in pictures)
        else None
        for row, pictures in zip(rows, shown, strict=True)
    ]


def mean_change(own: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """By how many nats a token's log-probability moves, in the mean over the tokens of all rows.

    Args:
        own: Natural logs of the sampled tokens of each row, with the pictures that it was shown.
        other: The same with other pictures.
    """
    return float((torch.cat(list(own)) - torch.cat(list(other))).abs().mean())


def _pictures_of(row: Mapping[str, Any]) -> list[tuple[Size, torch.Tensor]]:
    """Size and patches of each picture, in order."""
    if GRIDS not in row:
        return []
    sizes = [tuple(size) for size in row[GRIDS].tolist()]
    parts = row[PATCHES].split([time * height * width for time, height, width in sizes])
    return list(zip(sizes, parts, strict=True))


def _farthest(points_PN: torch.Tensor) -> list[int]:
    """Of each point the place of the one that is farthest from it, and never itself."""
    distances_PP = torch.cdist(points_PN, points_PN, p=1).fill_diagonal_(-1)
    return [int(place) for place in distances_PP.argmax(dim=1)]


def _bytes_of(patches: torch.Tensor) -> bytes:
    return patches.contiguous().view(torch.uint8).numpy().tobytes()
