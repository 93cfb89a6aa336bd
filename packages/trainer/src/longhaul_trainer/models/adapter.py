"""From a folder that holds a model and its low-rank adapter to one that holds their sum.

verl saves what it trains under PEFT's names: `base_model.model.….q_proj.base_layer.weight`
beside `….lora_A.default.weight` and `….lora_B.default.weight`. Neither transformers nor
vLLM knows those names; a model loaded from there would have random weights in their place.

Shapes: O outputs, I inputs, R rank of the adapter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

PREFIX = "base_model.model."
WRAPPED = ".base_layer"
INDEX = "model.safetensors.index.json"


class _Adapter(NamedTuple):
    """Where the two factors of a weight are: file and name."""

    down_RI: tuple[Path, str]
    up_OR: tuple[Path, str]


def merge_adapter(folder: Path, *, scale: float) -> None:
    """Add each adapter to its weight, `W + scale · B A`, and give the weights their plain names.

    Files are replaced, one in memory at a time, never written to: they may be links. A folder
    without adapters stays as it is.

    Args:
        folder: Hugging Face folder in safetensors, in one file or several.
        scale: `lora_alpha / R`.

    Raises:
        ValueError: If an adapter has only one of its factors, or no weight to be added to.
    """
    files = sorted(folder.glob("*.safetensors"))
    adapters = _adapters(files)
    if not adapters:
        return
    file_of: dict[str, str] = {}
    for file in files:
        merged = _merged(file, adapters, scale)
        file_of |= dict.fromkeys(merged, file.name)
        save_file(merged, _new(file), {"format": "pt"})
    missing = sorted(set(adapters) - set(file_of))
    if missing:
        raise ValueError(f"{folder}: no weight for the adapter of {missing[0]}")
    for file in files:  # only now: a factor may stand in another file than its weight
        _new(file).replace(file)
    _write_index(folder / INDEX, file_of)


def plain_name(name: str) -> str:
    """The name of a wrapped weight in the model itself."""
    return name.removeprefix(PREFIX).replace(WRAPPED, "")


def _adapters(files: Iterable[Path]) -> dict[str, _Adapter]:
    """By the plain name of the weight that each is added to."""
    found: dict[str, dict[str, tuple[Path, str]]] = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                for factor in ("lora_A", "lora_B"):
                    module, split, _ = plain_name(name).partition(f".{factor}.")
                    if split:
                        found.setdefault(f"{module}.weight", {})[factor] = file, name
    for weight, factors in found.items():
        if len(factors) != 2:
            raise ValueError(f"the adapter of {weight} has only {', '.join(factors)}")
    return {weight: _Adapter(f["lora_A"], f["lora_B"]) for weight, f in found.items()}


def _merged(file: Path, adapters: Mapping[str, _Adapter], scale: float) -> dict[str, torch.Tensor]:
    merged: dict[str, torch.Tensor] = {}
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            if ".lora_" in name:
                continue
            weight_OI = tensors.get_tensor(name)
            adapter = adapters.get(plain_name(name))
            if adapter is not None:
                added_OI = _read(*adapter.up_OR).float() @ _read(*adapter.down_RI).float()
                weight_OI = (weight_OI.float() + scale * added_OI).to(weight_OI.dtype)
            merged[plain_name(name)] = weight_OI
    return merged


def _new(file: Path) -> Path:
    return file.with_suffix(".new")


def _read(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as tensors:
        return tensors.get_tensor(name)


def _write_index(path: Path, file_of: Mapping[str, str]) -> None:
    """Say anew which file holds which weight, where there are several files."""
    if path.exists():
        index = json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
        path.write_text(json.dumps(index | {"weight_map": dict(file_of)}), encoding="utf-8")
