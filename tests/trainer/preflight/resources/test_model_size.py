"""Tests for `longhaul_trainer.preflight.resources.model_size`."""

from pathlib import Path
from typing import Any

import pytest
from recipe_costs import write_folder, write_headers

from longhaul_core.errors import ConfigError
from longhaul_trainer.preflight.resources.host_memory import PIXEL_BYTES
from longhaul_trainer.preflight.resources.model_size import BUILT_IN_SIZES, model_size, size_or_none
from longhaul_trainer.preflight.resources.published import PUBLISHED, shapes_of

SHAPE = {"vocab_size": 321, "num_hidden_layers": 2, "hidden_size": 512}


def test_parameters_are_counted_from_the_headers_of_the_files(tmp_path: Path) -> None:
    model = write_folder(tmp_path / "m", {"a": [10, 20], "b": [7], "scalar": []}, SHAPE)

    size = model_size(str(model))

    assert size.num_parameters == 10 * 20 + 7 + 1
    assert (size.vocabulary_size, size.num_layers, size.hidden_size) == (321, 2, 512)
    assert not size.tied
    assert size.context_tokens is None


def test_the_sizes_of_the_built_in_models_are_those_of_their_files() -> None:
    from longhaul_trainer.models.prepare import BUILT_IN_MODELS, prepare_model

    assert BUILT_IN_SIZES.keys() == BUILT_IN_MODELS.keys()
    for name in BUILT_IN_MODELS:
        assert BUILT_IN_SIZES[name] == model_size(str(prepare_model(name)))


def test_qwen_s_published_sizes_are_found_and_its_embedding_is_no_work(tmp_path: Path) -> None:
    small = model_size(str(write_headers(tmp_path / "small", PUBLISHED["Qwen2.5-1.5B-Instruct"])))
    large = model_size(str(write_headers(tmp_path / "large", PUBLISHED["Qwen2.5-7B-Instruct"])))

    assert (small.num_parameters, large.num_parameters) == (1_543_714_304, 7_615_616_512)
    assert (small.tied, large.tied) == (True, False)
    assert (small.key_value_width, large.key_value_width) == (256, 512)
    # a tied embedding is multiplied with as the output; else only its row is read
    assert small.multiplied_parameters == small.num_parameters
    assert large.multiplied_parameters == 7_615_616_512 - 152_064 * 3_584


def test_an_adapter_trains_a_rank_of_each_matrix_that_it_is_beside(tmp_path: Path) -> None:
    size = model_size(str(write_headers(tmp_path / "m", PUBLISHED["Qwen2.5-1.5B-Instruct"])))
    attention = 28 * (2 * (1536 + 1536) + 2 * (1536 + 256))
    perceptron = 28 * 3 * (1536 + 8960)

    assert size.num_trained(0) == 1_543_714_304
    assert size.num_trained(32) == 32 * (attention + perceptron)
    assert size.num_trained(32, ["q_proj", "v_proj"]) == 32 * 28 * (3072 + 1792)


def test_a_model_that_cannot_be_read_has_no_size(tmp_path: Path) -> None:
    broken = write_folder(tmp_path / "m", {"a": [1]}, {"vocab_size": 3})

    with pytest.raises(ConfigError, match=r"critic.path = .* cannot be read: KeyError"):
        model_size(str(broken), setting="critic.path")
    assert size_or_none(str(broken)) is None
    assert size_or_none(str(tmp_path / "gone")) is None


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_model_without_weights_has_the_size_that_its_configuration_says(
    tmp_path: Path, family: str
) -> None:
    import transformers

    library: Any = transformers  # typed in part
    config = library.AutoConfig.for_model(
        family,
        vocab_size=97,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        tie_word_embeddings=family == "qwen3",
        max_position_embeddings=64,
    )
    config.save_pretrained(tmp_path / "alone")
    library.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "whole")
    (tmp_path / "whole" / "tokenizer.json").write_text("{}", encoding="utf-8")

    alone = size_or_none(str(tmp_path / "alone"))

    assert alone == size_or_none(str(tmp_path / "whole"))
    assert alone is not None
    with pytest.raises(ConfigError, match="lacks weights"):
        model_size(str(tmp_path / "alone"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_tensors_of_a_published_model_are_those_that_transformers_makes(name: str) -> None:
    import torch
    import transformers

    library: Any = transformers  # typed in part
    config = library.AutoConfig.for_model(**PUBLISHED[name])
    kind = "ImageTextToText" if "vision_config" in PUBLISHED[name] else "CausalLM"
    with torch.device("meta"):
        model = getattr(library, f"AutoModelFor{kind}").from_config(config)

    assert dict(shapes_of(PUBLISHED[name])) == {
        tensor: list(weight.shape) for tensor, weight in model.named_parameters()
    }


def test_a_published_model_that_is_not_here_has_its_size(tmp_path: Path) -> None:
    name = "Qwen2.5-7B-Instruct"
    whole = write_headers(tmp_path / "m", PUBLISHED[name])

    assert size_or_none(f"models/{name}") == model_size(str(whole))
    assert size_or_none("models/Qwen2.5-8B-Instruct") is None
    with pytest.raises(ConfigError, match="is not a folder"):
        model_size(f"models/{name}")


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_a_picture_takes_the_memory_that_is_reckoned(family: str, tmp_path: Path) -> None:
    import numpy as np
    import transformers
    from PIL import Image

    from longhaul_trainer.models.tiny_vision import write_tiny_vision_model

    write_tiny_vision_model(tmp_path, family=family)
    library: Any = transformers
    read = library.AutoProcessor.from_pretrained(tmp_path).image_processor
    config = library.AutoConfig.from_pretrained(tmp_path).vision_config

    sight = model_size(str(tmp_path)).sight

    assert sight is not None
    assert sight.hidden_size == getattr(config, "embed_dim", config.hidden_size)
    assert sight.num_layers == config.depth
    sizes: set[int] = set()
    for side in (read.patch_size, 4 * read.patch_size, 8 * read.patch_size):
        picture = Image.fromarray(np.zeros((side, side, 3), dtype=np.uint8))
        patches = read(images=[picture], return_tensors="np")["pixel_values"]
        pixels = sight.pixels(side**2)
        assert patches.nbytes == PIXEL_BYTES * pixels
        assert len(patches) == pixels / sight.token_pixels * sight.token_patches
        sizes.add(pixels)
    assert len(sizes) > 1
