"""Tests for `longhaul_trainer.resources.model_size`."""

from pathlib import Path

import pytest
from recipe_costs import QWEN2_5, write_folder, write_headers

from longhaul_core.errors import ConfigError
from longhaul_trainer.resources.model_size import BUILT_IN_SIZES, model_size, size_or_none

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
    small = model_size(str(write_headers(tmp_path / "small", QWEN2_5["1.5B"])))
    large = model_size(str(write_headers(tmp_path / "large", QWEN2_5["7B"])))

    assert (small.num_parameters, large.num_parameters) == (1_543_714_304, 7_615_616_512)
    assert (small.tied, large.tied) == (True, False)
    assert (small.key_value_width, large.key_value_width) == (256, 512)
    # a tied embedding is multiplied with as the output; else only its row is read
    assert small.multiplied_parameters == small.num_parameters
    assert large.multiplied_parameters == 7_615_616_512 - 152_064 * 3_584


def test_an_adapter_trains_a_rank_of_each_matrix_that_it_is_beside(tmp_path: Path) -> None:
    size = model_size(str(write_headers(tmp_path / "m", QWEN2_5["1.5B"])))
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
