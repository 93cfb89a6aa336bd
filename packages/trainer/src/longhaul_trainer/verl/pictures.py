"""What the learner's models read of pictures.

A row's pictures travel as patches, beside its tokens: verl's agent-loop worker makes them of what
`rows.to_rows` gave it, by the model's own processor, and its engine hands those of a micro-batch's
rows to the model one after the other. A picture costs 4 bytes for each of the 1,176 numbers of a
patch of Qwen2.5-VL, so 19 KB for each of its tokens in the prompt: 0.3 MB for one of 112 by 112
pixels.
"""

from __future__ import annotations

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
        """As verl's; the part of the model that reads pictures returns their features alone."""
        engine: Any = super()
        return return_features_alone(engine._build_module())


def return_features_alone(
    module: Any,  # noqa: ANN401  transformers' models share no type that has `model`
) -> Any:  # noqa: ANN401
    """Have the part of the model that reads pictures return nothing but features.

    transformers 5 returns them in an object. verl takes them out of it, except, in Qwen2-VL and
    Qwen2.5-VL, for a micro-batch without a picture, as of the rows that it fills up with: there it
    takes the mean of the object, which has none. Of other models verl needs the object: Qwen3-VL's
    has features for several layers.

    Returns:
        The same model.
    """
    family = FAMILIES.get(module.config.model_type)
    if family is not None and family.bare_features:
        module.model.visual.register_forward_hook(_features)
    return module


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


def _features(module: torch.nn.Module, given: object, returned: Any) -> Any:  # noqa: ANN401
    return getattr(returned, "pooler_output", returned)
