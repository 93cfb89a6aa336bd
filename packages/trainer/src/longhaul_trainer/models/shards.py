"""From the files that verl's learner resumes from to a Hugging Face folder.

Each rank writes what it holds: its shard of every weight in float32, or, with an adapter, of the
adapter's factors alone. Here they are put together, on the CPU and without a process group.
`verl.model_merger` would round the weights to bfloat16, and leave an adapter beside them.
"""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch.distributed.tensor import DTensor

from longhaul_trainer.models.adapter import ADAPTER_META, adapters_in, scale_of
from longhaul_trainer.models.vision import FAMILIES

Weights = dict[str, torch.Tensor]


def write_model(actor: Path, folder: Path, *, start: Path) -> None:
    """Write the learner's weights, its adapter added, as a model in float32.

    Takes host memory for the model in float32, once; twice where several ranks share the weights.

    Args:
        actor: The learner's part of a checkpoint, as verl wrote it.
        folder: New Hugging Face folder; it gets the tokenizer that lies in `actor` too.
        start: Hugging Face folder of the weights that the learner started from.

    Raises:
        OSError: If a file is missing or cannot be written.
        ValueError: If the weights are not those of the model in `start`, or a file holds more.
    """
    kind = json.loads((start / "config.json").read_bytes())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(start, dtype=torch.float32)
    _put(model, whole_weights(actor), actor / ADAPTER_META)
    save_model(model, folder)
    for file in sorted((actor / "huggingface").iterdir()):
        if not (folder / file.name).exists():
            shutil.copy2(file, folder / file.name)


def save_model(model: Any, folder: Path) -> None:  # noqa: ANN401  a class a family
    """Write a model of transformers as the models of its family are published.

    transformers 5.9 transposes experts when it loads them, and not when it saves them.

    Raises:
        OSError: If a file cannot be written.
    """
    family = FAMILIES.get(model.config.model_type)
    if family is None or not family.experts_by_input:
        model.save_pretrained(folder)
        return
    weights = {
        name: weight.transpose(1, 2).contiguous() if ".mlp.experts." in name else weight
        for name, weight in model.state_dict().items()
    }
    model.save_pretrained(folder, state_dict=weights, save_original_format=False)


def whole_weights(actor: Path) -> Weights:
    """Name and value of everything that the ranks wrote; mapped from the files, not read.

    Raises:
        OSError: If a file is missing.
        ValueError: If one holds more than weights, which loading it would carry out.
    """
    num_ranks = int(json.loads((actor / "fsdp_config.json").read_bytes())["world_size"])
    first = _of_rank(actor, 0, num_ranks)
    sharded = [weight for weight in first.values() if isinstance(weight, DTensor)]
    # With replicas the last axis of the mesh holds one of them, ranks 0 and up.
    num_shards = sharded[0].device_mesh.shape[-1] if sharded else 1
    ranks = [first, *(_of_rank(actor, rank, num_ranks) for rank in range(1, num_shards))]
    return {name: _whole([rank[name] for rank in ranks]) for name in first}


def _of_rank(actor: Path, rank: int, num_ranks: int) -> Weights:
    file = actor / f"model_world_size_{num_ranks}_rank_{rank}.pt"
    try:  # a folder may be a stranger's; with DTensor come the classes that a shard is made of
        return cast("Weights", torch.load(file, map_location="cpu", weights_only=True, mmap=True))
    except pickle.UnpicklingError as error:
        raise ValueError(f"{file} is refused, since it holds more than weights: {error}") from error


@torch.no_grad()
def _whole(parts: list[torch.Tensor]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    local = [cast("DTensor", part).to_local() for part in parts]
    placement: Any = first.placements[-1]  # its classes have no annotations
    return torch.cat(local, dim=placement.dim) if placement.is_shard() else local[0]


@torch.no_grad()
def _put(model: torch.nn.Module, weights: Weights, meta: Path) -> None:
    adapters = adapters_in(weights)
    if not adapters:
        model.load_state_dict(weights)
        return
    scale, of_model = scale_of(meta), dict(model.named_parameters())
    missing = sorted(adapters.keys() - of_model.keys())
    if missing:
        raise ValueError(f"the starting model has no weight for the adapter of {missing[0]}")
    for name, adapter in adapters.items():
        of_model[name].add_(scale * adapter.added_OI)
