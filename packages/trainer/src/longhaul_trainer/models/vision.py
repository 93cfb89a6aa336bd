"""Which models read pictures, by the files of their folders. Imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from longhaul_core.errors import ConfigError
from longhaul_trainer.models.prepare import BUILT_IN_MODELS


class Family(NamedTuple):
    """What is to be known of models of one architecture that read pictures.

    All else is asked of the processor: the token that stands for a picture, the patches that it
    takes, how many of them make a token, and, by `mm_token_type_ids`, the positions of tokens.
    """

    processor: str
    """Its class in transformers. verl's `hf_processor` must know it, and bind `get_rope_index`."""
    bare_features: bool = False
    """Whether verl's forward pass takes the mean of what the part that reads pictures returns, and
    so needs a tensor: see `longhaul_trainer.verl.pictures`."""
    packed_by_flash_attn: bool = False
    """Whether verl's attention of its packed rows takes functions from the package `flash-attn`."""
    linear_attention: bool = False
    """Whether most layers keep a state for a sequence instead of keys and values of its tokens."""
    experts_by_input: bool = False
    """Whether the files that are published, which alone vLLM loads, hold experts of
    [experts, input, output]; transformers computes with [experts, output, input]."""


FAMILIES: Mapping[str, Family] = {
    "qwen2_vl": Family("Qwen2VLProcessor", bare_features=True, packed_by_flash_attn=True),
    "qwen2_5_vl": Family("Qwen2_5_VLProcessor", bare_features=True, packed_by_flash_attn=True),
    "qwen3_vl": Family("Qwen3VLProcessor"),
    "qwen3_vl_moe": Family("Qwen3VLProcessor", experts_by_input=True),
    "qwen3_5": Family("Qwen3VLProcessor", linear_attention=True),
    "qwen3_5_moe": Family("Qwen3VLProcessor", linear_attention=True),
}
"""By `model_type`: the models whose pictures are rendered, sampled and trained."""
PROCESSORS = frozenset(family.processor for family in FAMILIES.values())
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_BUILT_IN = "tiny-vision"


def reads_pictures(path: str | Path) -> bool:
    """Whether prompts for this model hold their pictures.

    Args:
        path: A built-in model's name, or a Hugging Face folder; what cannot be read, which other
            checks report, reads none.
    """
    return _family(path) is not None


def needs_flash_attn_to_pack(path: str | Path) -> bool:
    """Whether the learner packs this model's rows only with the package `flash-attn`.

    Args:
        path: As for `reads_pictures`.
    """
    family = _family(path)
    return family is not None and family.packed_by_flash_attn


def has_linear_attention(path: str | Path) -> bool:
    """Whether a model that reads pictures has layers of linear attention.

    Args:
        path: As for `reads_pictures`.
    """
    family = _family(path)
    return family is not None and family.linear_attention


def require_processor(path: str | Path, *, setting: str) -> None:
    """Refuse a model that reads pictures and has no image processor: it would be trained blindly.

    Raises:
        ConfigError: If the folder lacks its `preprocessor_config.json`, for which transformers 5
            writes `processor_config.json`.
    """
    if str(path) in BUILT_IN_MODELS or not reads_pictures(path):
        return
    folder = Path(path).expanduser()
    if not any((folder / name).is_file() for name in PROCESSOR_FILES):
        raise ConfigError(
            f"{setting} = {str(path)!r} reads pictures and lacks preprocessor_config.json, which "
            "says how they are cut into patches; copy it from the model it was made of"
        )


def model_type(path: str | Path) -> str:
    """Transformers' name of a model's architecture; empty where its folder does not say it.

    Args:
        path: As for `reads_pictures`.
    """
    if str(path) in BUILT_IN_MODELS:
        return "qwen2_5_vl" if str(path) == _BUILT_IN else "llama"
    return str(_config(Path(path)).get("model_type", ""))


def _family(path: str | Path) -> Family | None:
    return FAMILIES.get(model_type(path))


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder.expanduser() / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", config) if isinstance(config, dict) else {}
