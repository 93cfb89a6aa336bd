"""From a folder that holds a model and its low-rank adapter to one that holds their sum.

verl saves what it trains under PEFT's names: `base_model.model.….q_proj.base_layer.weight`
beside `….lora_A.default.weight` and `….lora_B.default.weight`. Neither transformers nor
vLLM knows those names; a model loaded from there would have random weights in their place.

Shapes: O outputs, I inputs, R rank of the adapter.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

PREFIX = "base_model.model."
WRAPPED = ".base_layer"
FACTORS = (".lora_A.default.weight", ".lora_B.default.weight")
INDEX = "model.safetensors.index.json"
ADAPTER_META = "lora_train_meta.json"
"""verl's file beside an adapter's weights: its rank and its alpha."""


class Adapter(NamedTuple):
    """The factors of what is added to one weight."""

    down_RI: torch.Tensor
    up_OR: torch.Tensor

    @property
    def added_OI(self) -> torch.Tensor:
        """Their product in float32, before it is scaled."""
        return self.up_OR.float() @ self.down_RI.float()


def scale_of(meta: Path) -> float:
    """What an adapter is scaled by, `lora_alpha / R`, as verl wrote it beside a checkpoint."""
    adapter = json.loads(meta.read_text(encoding="utf-8"))
    return adapter["lora_alpha"] / adapter["r"]


def merge_adapter(folder: Path, *, scale: float) -> None:
    """Add each adapter to its weight, `W + scale · B A`, and give the weights their plain names.

    Files are replaced, never written to: they may be links. A folder without adapters stays as
    it is.

    Args:
        folder: Hugging Face folder in safetensors, in one file or several.
        scale: `lora_alpha / R`.

    Raises:
        ValueError: If an adapter has only one of its factors, or no weight to be added to.
    """
    files = sorted(folder.glob("*.safetensors"))
    # Only the factors, which fit into memory.
    adapters = adapters_in(
        {
            name: tensor
            for file in files
            for name, tensor in load_file(file).items()
            if name.endswith(FACTORS)
        }
    )
    if not adapters:
        return
    file_of: dict[str, str] = {}
    for file in files:
        merged = _merged(load_file(file), adapters, scale)
        file_of |= dict.fromkeys(merged, file.name)
        new = file.with_suffix(".new")
        save_file(merged, new, {"format": "pt"})
        new.replace(file)
    missing = sorted(set(adapters) - set(file_of))
    if missing:
        raise ValueError(f"{folder}: no weight for the adapter of {missing[0]}")
    _write_index(folder / INDEX, file_of)


def plain_name(name: str) -> str:
    """The name of a wrapped weight in the model itself."""
    return name.removeprefix(PREFIX).replace(WRAPPED, "")


def adapters_in(tensors: Mapping[str, torch.Tensor]) -> dict[str, Adapter]:
    """The adapters among tensors, by the plain name of the weight that each is added to.

    Raises:
        ValueError: If an adapter has only one of its factors.
    """
    found = {plain_name(name): tensor for name, tensor in tensors.items() if name.endswith(FACTORS)}
    modules = {name.removesuffix(factor) for name in found for factor in FACTORS if factor in name}
    adapters: dict[str, Adapter] = {}
    for module in sorted(modules):
        down_RI, up_OR = (found.get(module + factor) for factor in FACTORS)
        if down_RI is None or up_OR is None:
            raise ValueError(f"the adapter of {module} has only one of its two factors")
        adapters[f"{module}.weight"] = Adapter(down_RI, up_OR)
    return adapters


def _merged(
    tensors: Mapping[str, torch.Tensor], adapters: Mapping[str, Adapter], scale: float
) -> dict[str, torch.Tensor]:
    merged: dict[str, torch.Tensor] = {}
    for name, weight_OI in tensors.items():
        if name.endswith(FACTORS):
            continue
        adapter = adapters.get(plain_name(name))
        if adapter is None:
            merged[plain_name(name)] = weight_OI
        else:
            sum_OI = weight_OI.float() + scale * adapter.added_OI
            merged[plain_name(name)] = sum_OI.to(weight_OI.dtype)
    return merged


def _write_index(path: Path, file_of: Mapping[str, str]) -> None:
    """Say anew which file holds which weight, where there are several files."""
    if path.exists():
        index = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        path.write_text(json.dumps(index | {"weight_map": dict(file_of)}), encoding="utf-8")
