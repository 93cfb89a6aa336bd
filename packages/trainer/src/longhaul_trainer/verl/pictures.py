"""What the learner's models read of pictures.

A row's pictures travel as patches, beside its tokens: verl's agent-loop worker makes them of what
`rows.to_rows` gave it, by the model's own processor, and its engine hands those of a micro-batch's
rows to the model one after the other. A picture costs 4 bytes for each of the 1,176 numbers of a
patch of Qwen2.5-VL, so 19 KB for each of its tokens in the prompt: 0.3 MB for one of 112 by 112
pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.model import extract_multi_modal_inputs
from verl.workers import engine_workers
from verl.workers.engine import base
from verl.workers.engine.base import BaseEngine

from longhaul_trainer.models.vision import FAMILIES


class PicturesAsFeatures(BaseEngine):
    """An engine of verl whose model may read pictures. Put it before verl's engine."""

    module: torch.nn.Module

    def _build_module(self) -> torch.nn.Module:
        """As verl's; the part of the model that reads pictures reads equal ones once."""
        engine: Any = super()
        return read_equal_pictures_once(engine._build_module())


def read_equal_pictures_once(
    module: Any,  # noqa: ANN401  transformers' models share no type that has `model`
) -> Any:  # noqa: ANN401
    """Have the part of the model that reads pictures read each of a micro-batch's once.

    Episodes of a group begin with the same picture, and an action without effect leaves it as it
    was. Features are copied to where an equal picture stands, so a gradient is the sum over all.

    transformers 5 returns features in an object. verl takes them out of it, except, in Qwen2-VL and
    Qwen2.5-VL, for a micro-batch without a picture, as of the rows that it fills up with: there it
    takes the mean of the object, which has none. So of those models they are returned alone. Of
    other models verl needs the object: Qwen3-VL's has features for several layers.

    Returns:
        The same model.
    """
    family = FAMILIES.get(module.config.model_type)
    if family is None:
        return module
    visual = module.model.visual
    read, bare, area = visual.forward, family.bare_features, visual.spatial_merge_size**2

    def read_once(patches: torch.Tensor, grid_thw: torch.Tensor, **settings: Any) -> Any:  # noqa: ANN401
        sizes = grid_thw.prod(-1).tolist()
        pictures = patches.split(sizes)
        firsts, stands_for = equal_pictures(pictures, grid_thw.tolist())
        if len(firsts) < len(pictures):
            patches = torch.cat([pictures[first] for first in firsts])
        returned = read(patches, grid_thw=grid_thw[firsts], **settings)
        tokens = [sizes[first] // area for first in firsts]

        def everywhere(features: torch.Tensor) -> torch.Tensor:
            if len(firsts) == len(pictures):
                return features
            of_pictures = features.split(tokens)
            return torch.cat([of_pictures[index] for index in stands_for])

        returned.pooler_output = everywhere(returned.pooler_output)
        if (of_layers := getattr(returned, "deepstack_features", None)) is not None:
            returned.deepstack_features = [everywhere(features) for features in of_layers]
        return returned.pooler_output if bare else returned

    visual.forward = read_once
    return module


def equal_pictures(
    pictures: Sequence[torch.Tensor], shapes: Sequence[Sequence[int]]
) -> tuple[list[int], list[int]]:
    """Which pictures are the same.

    Args:
        pictures: Their patches, [patches, numbers of a patch] each.
        shapes: How many patches each has in time, height and width.

    Returns:
        Of each different picture the index of the first, in order; for each picture, the place of
        its equal among those.
    """
    firsts: list[int] = []
    stands_for: list[int] = []
    alike: dict[tuple[object, ...], list[int]] = {}
    sums = torch.stack([picture.sum(dtype=torch.float64) for picture in pictures]).tolist()
    for index, (picture, shape, total) in enumerate(zip(pictures, shapes, sums, strict=True)):
        places = alike.setdefault((*shape, total), [])
        known = (place for place in places if torch.equal(pictures[firsts[place]], picture))
        place = next(known, len(firsts))
        if place == len(firsts):
            firsts.append(index)
            places.append(place)
        stands_for.append(place)
    return firsts, stands_for


def reads_pictures(
    config: Any,  # noqa: ANN401  each family has a class of its own
) -> bool:
    """Whether a model of this configuration, one of transformers, has a part that does."""
    return hasattr(config, "vision_config")


def patches_of(micro_batch: TensorDict) -> dict[str, Any]:
    """What the model reads of the pictures of a micro-batch, by its own names; rows in order."""
    return extract_multi_modal_inputs(micro_batch.get("multi_modal_inputs", []))


def positions_along_tokens(data: TensorDict) -> None:
    """Have the positions of rows, of several kinds a token, ragged along the tokens, in place.

    TransferQueue packs rows of equal length ragged along the kinds, and verl's own function then
    calls that axis the tokens'. It is called where a worker and its engine receive rows.
    """
    positions: Any = data.get("position_ids")
    if positions is None or not positions.is_nested or positions.dim() != 3:
        return
    values, num_rows = positions.values(), len(data)
    num_packed, length = values.shape
    if num_packed != positions.offsets()[-1] or (num_rows == 1 and num_packed == length):
        positions._ragged_idx = 2  # which pickling loses
        return
    by_kind = values.view(num_rows, -1, length).transpose(0, 1).flatten(1)
    data["position_ids"] = torch.nested.nested_tensor_from_jagged(
        by_kind, torch.arange(num_rows + 1) * length, jagged_dim=2
    )


_RECEIVERS: tuple[Any, ...] = (engine_workers, base)
for _module in _RECEIVERS:
    _module.maybe_fix_3d_position_ids = positions_along_tokens
