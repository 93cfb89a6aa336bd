"""Parameters and shape of a model, from the headers of its files."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from longhaul_core.errors import ConfigError
from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.vision import FAMILIES, PROCESSOR_FILES
from longhaul_trainer.preflight.resources.published import LEAST_PIXELS, published_config, shapes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The part of a model that reads pictures."""

    num_layers: int
    hidden_size: int
    mlp_width: int
    token_pixels: int
    """Of a picture that has been brought to the size that is read, for each of its tokens."""
    token_patches: int
    """What this part computes with in the place of a token."""
    least_pixels: int
    """A smaller picture is enlarged to as many."""

    def pixels(self, pixels: int) -> int:
        """Of a picture as it is read."""
        return max(pixels, self.least_pixels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What memory, disk and time follow from."""

    num_parameters: int
    vocabulary_size: int
    num_layers: int
    hidden_size: int
    mlp_width: int
    """Hidden units of a layer's perceptron."""
    key_value_width: int
    """Numbers in the keys of a token in a layer; as many in the values."""
    tied: bool
    """Whether the output shares its matrix with the embedding."""
    context_tokens: int | None = None
    """Longest prompt with its reply; None where the model does not say."""
    linear_widths: Mapping[str, int] = field(default_factory=dict[str, int])
    """Inputs and outputs of the layers' matrices, summed by the matrix's name (`q_proj`): what a
    rank of an adapter costs there."""
    sight: Sight | None = None
    """None for a model that reads no pictures."""

    def num_trained(self, lora_rank: int, targets: Iterable[str] | None = None) -> int:
        """Parameters that an optimizer moves: an adapter's, or all of them at rank 0.

        Args:
            lora_rank: Of the adapter.
            targets: Names of the matrices that have one; None for all of the layers'.
        """
        if not lora_rank:
            return self.num_parameters
        widths = self.linear_widths
        names = widths if targets is None else widths.keys() & set(targets)
        return lora_rank * sum(widths[name] for name in names)

    @property
    def embedding_parameters(self) -> int:
        """Of the embedding and the output together."""
        return self.vocabulary_size * self.hidden_size * (1 if self.tied else 2)

    @property
    def multiplied_parameters(self) -> int:
        """Parameters that each token is multiplied with: an embedding that is only read is none."""
        return self.num_parameters - (0 if self.tied else self.embedding_parameters // 2)

    @property
    def layer_parameters(self) -> int:
        """Of one layer, rounded down."""
        return max(0, self.num_parameters - self.embedding_parameters) // max(1, self.num_layers)


_TINY = ModelSize(
    num_parameters=336_192,
    vocabulary_size=4_096,
    num_layers=2,
    hidden_size=64,
    mlp_width=128,
    key_value_width=32,
    tied=True,
    context_tokens=4_096,
    linear_widths={
        **dict.fromkeys(("q_proj", "o_proj"), 256),
        **dict.fromkeys(("k_proj", "v_proj"), 192),
        **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), 384),
    },
)
_TINY_TOOLS = replace(_TINY, num_parameters=599_872, vocabulary_size=4_108, tied=False)
BUILT_IN_SIZES = {
    "smollm2": ModelSize(
        num_parameters=134_515_008,
        vocabulary_size=49_152,
        num_layers=30,
        hidden_size=576,
        mlp_width=1_536,
        key_value_width=192,
        tied=True,
        context_tokens=8_192,
        linear_widths={
            **dict.fromkeys(("q_proj", "o_proj"), 34_560),
            **dict.fromkeys(("k_proj", "v_proj"), 23_040),
            **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), 63_360),
        },
    ),
    "tiny": _TINY,
    "tiny-moves": _TINY,
    "tiny-tools": _TINY_TOOLS,
    "tiny-vision": replace(
        _TINY,
        num_parameters=420_320,
        vocabulary_size=4_100,
        sight=Sight(
            num_layers=2,
            hidden_size=32,
            mlp_width=64,
            token_pixels=28**2,
            token_patches=4,
            least_pixels=4 * 28**2,
        ),
    ),
}
"""Of the models that are names and may not be written yet."""


def model_size(path: str, *, setting: str = "model.path") -> ModelSize:
    """Parameters and shape of a model, from the headers of its files.

    Args:
        path: A built-in model's name, or a Hugging Face folder.
        setting: That names it, for messages.

    Raises:
        ConfigError: If `path` is no built-in model and no folder with weights.
    """
    if path in BUILT_IN_SIZES:
        return BUILT_IN_SIZES[path]
    folder = prepare_model(path, setting=setting)
    try:
        config = json.loads((folder / "config.json").read_bytes())
        shapes = [
            shape
            for file in sorted(folder.glob("*.safetensors"))
            for shape in _shapes(file).items()
        ]
        return _size_of(config, shapes, least_pixels=_least_pixels(folder))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{setting} = {path!r} cannot be read: {error!r}") from error


def size_or_none(path: str) -> ModelSize | None:
    """As `model_size`, and without weights by the folder's `config.json` or what is published.

    Returns:
        None where these say nothing either, which other checks report.
    """
    try:
        return model_size(path)
    except ConfigError:
        pass
    folder = Path(path).expanduser()
    if any(folder.glob("*.safetensors")):
        return None  # they are broken
    try:
        file = folder / "config.json"
        config = json.loads(file.read_bytes()) if folder.is_dir() else published_config(path)
        if config is None:
            return None
        least_pixels = _least_pixels(folder) or LEAST_PIXELS.get(folder.name, 0)
        return _size_of(config, [*shapes_of(config)], least_pixels=least_pixels)
    except (OSError, ValueError, KeyError):
        return None


def _size_of(
    config: Mapping[str, object], shapes: list[tuple[str, list[int]]], *, least_pixels: int
) -> ModelSize:
    """Keys that a model of another form lacks stand for the usual: four hidden sizes, own keys.

    A model that reads pictures may hold what is of its text in a table of its own.
    """
    sight = None
    if config.get("model_type") in FAMILIES:
        sight = _sight(cast("Mapping[str, Any]", config["vision_config"]), least_pixels)
    config = {**config, **cast("Mapping[str, object]", config.get("text_config") or {})}

    def number(key: str, default: int | None = None) -> int:
        return int(cast("int", config[key] if default is None else config.get(key) or default))

    hidden, heads = number("hidden_size"), number("num_attention_heads", 1)
    key_value_heads = number("num_key_value_heads", heads)
    widths: dict[str, int] = {}
    for name, shape in shapes:
        if ".layers." in name and len(shape) == 2:
            matrix = name.removesuffix(".weight").rpartition(".")[2]
            widths[matrix] = widths.get(matrix, 0) + sum(shape)
    return ModelSize(
        num_parameters=sum(math.prod(shape) for _, shape in shapes),
        vocabulary_size=number("vocab_size"),
        num_layers=number("num_hidden_layers"),
        hidden_size=hidden,
        mlp_width=number("intermediate_size", 4 * hidden),
        key_value_width=key_value_heads * number("head_dim", hidden // heads),
        tied=bool(config.get("tie_word_embeddings", False)),
        context_tokens=None
        if config.get("max_position_embeddings") is None
        else number("max_position_embeddings"),
        linear_widths=widths,
        sight=sight,
    )


def _sight(config: Mapping[str, Any], least_pixels: int) -> Sight:
    """By a `vision_config`; Qwen2-VL's calls the width of its layers `embed_dim`."""
    hidden = config.get("embed_dim") or config["hidden_size"]
    return Sight(
        num_layers=config["depth"],
        hidden_size=hidden,
        mlp_width=config.get("intermediate_size") or int(config.get("mlp_ratio", 4) * hidden),
        token_pixels=(config["patch_size"] * config["spatial_merge_size"]) ** 2,
        token_patches=config["spatial_merge_size"] ** 2,
        least_pixels=least_pixels,
    )


def _least_pixels(folder: Path) -> int:
    """Of a picture, by the folder's image processor; 0 where it does not say."""
    for name in PROCESSOR_FILES:
        try:
            processor = json.loads((folder / name).read_bytes())
            processor = processor.get("image_processor") or processor
            least = processor.get("min_pixels") or processor.get("size", {}).get("shortest_edge")
        except (OSError, ValueError, AttributeError):
            continue
        if least:
            return int(least)
    return 0


def _shapes(file: Path) -> dict[str, list[int]]:
    """Of all tensors of a safetensors file: its header is JSON after its length."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return {
        name: [int(length) for length in entry["shape"]]
        for name, entry in header.items()
        if name != "__metadata__"
    }
