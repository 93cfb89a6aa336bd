"""Which models read pictures, by the files of their folders. Imports no torch."""

import json
from pathlib import Path
from typing import Any, cast

from longhaul_core.errors import ConfigError
from longhaul_trainer.models.prepare import BUILT_IN_MODELS

FAMILIES = ("qwen2_vl", "qwen2_5_vl")
"""`model_type` of the models whose pictures are rendered, sampled and trained."""
PROCESSORS = ("Qwen2VLProcessor", "Qwen2_5_VLProcessor")
"""Their processors' classes in transformers."""
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_BUILT_IN = "tiny-vision"


def reads_pictures(path: str | Path) -> bool:
    """Whether prompts for this model hold their pictures.

    Args:
        path: A built-in model's name, or a Hugging Face folder; what cannot be read, which other
            checks report, reads none.
    """
    if str(path) in BUILT_IN_MODELS:
        return str(path) == _BUILT_IN
    return _config(Path(path)).get("model_type") in FAMILIES


def require_processor(path: str | Path, *, setting: str) -> None:
    """Refuse a model that reads pictures and has no image processor: it would be trained blindly.

    Raises:
        ConfigError: If the folder lacks its `preprocessor_config.json`, for which transformers 5
            writes `processor_config.json`.
    """
    if str(path) in BUILT_IN_MODELS or not reads_pictures(path):
        return
    folder = Path(path).expanduser()
    if not any((folder / name).is_file() for name in _PROCESSOR_FILES):
        raise ConfigError(
            f"{setting} = {str(path)!r} reads pictures and lacks preprocessor_config.json, which "
            "says how they are cut into patches; copy it from the model it was made of"
        )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder.expanduser() / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", config) if isinstance(config, dict) else {}
