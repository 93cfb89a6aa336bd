"""verl's worker of the critic on GPUs, with the attention that the settings name.

verl loads a critic with FlashAttention 2 whatever its configuration, and draws its last
layer at random. Here it is loaded as configured, and its last layer begins at zero on every
device: until the critic has learnt something, nothing is expected, and the same run begins with
the same critic. A critic that reads pictures is the policy's model with one output in the place of
its vocabulary, so that it is called as verl calls the policy. All else is verl's FSDP engine.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.fsdp_utils import get_init_weight_context_manager
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

from longhaul_trainer.verl import torch_flash
from longhaul_trainer.verl.learning_rate import RisingLearningRate
from longhaul_trainer.verl.parts import RowsInParts
from longhaul_trainer.verl.pictures import read_equal_pictures_once, reads_pictures

torch_flash.register()


class GpuCriticWorker(TrainingWorker):
    """verl's own; its process has imported this module, and so the engine below."""


def load_value_model(
    settings: Any,  # noqa: ANN401  verl's HFModelConfig, whose fields are untyped
    *,
    dtype: object,
) -> PreTrainedModel:
    """The policy's kind of model, whose head gives one number for each token, at first 0.

    Args:
        settings: verl's of the model; its `hf_config` names the attention.
        dtype: Of the weights, as verl's engines name it.
    """
    config, precision = settings.hf_config, PrecisionType.to_dtype(dtype)
    if reads_pictures(config):
        module = _picture_model(settings.local_path, config, precision)
    else:
        config.num_labels = 1
        config.classifier_dropout = 0.0
        module: Any = AutoModelForTokenClassification.from_pretrained(
            settings.local_path, config=config, dtype=precision
        )
        torch.nn.init.zeros_(module.score.weight)
        torch.nn.init.zeros_(module.score.bias)
    if settings.enable_gradient_checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return module


def _picture_model(
    path: str,
    config: Any,  # noqa: ANN401  of a family, whose classes share no type
    precision: torch.dtype,
) -> Any:  # noqa: ANN401  so does the model
    for part in (config, config.get_text_config()):
        part.tie_word_embeddings = False
    module: Any = AutoModelForImageTextToText.from_pretrained(path, config=config, dtype=precision)
    module.lm_head = torch.nn.Linear(config.get_text_config().hidden_size, 1, dtype=precision)
    torch.nn.init.zeros_(module.lm_head.weight)
    torch.nn.init.zeros_(module.lm_head.bias)
    return read_equal_pictures_once(module)


# verl's own holds the place of every vendor; that of one vendor is asked first.
@EngineRegistry.register(
    model_type="value_model", backend=["fsdp", "fsdp2"], device="cuda", vendor="nvidia"
)
class GpuValueEngine(RisingLearningRate, RowsInParts, FSDPEngineWithValueHead):
    """verl's FSDP engine with one value for each token."""

    # verl registers the classes through a decorator that hides their types.
    model_config: Any
    engine_config: Any
    device_mesh: Any
    use_remove_padding: bool
    ulysses_sequence_parallel_size: int

    def _build_module(self) -> torch.nn.Module:
        tied = self.model_config.hf_config.tie_word_embeddings
        # As verl does it: one rank of a shard group reads the weights and gives them to the others.
        with get_init_weight_context_manager(use_meta_tensor=not tied, mesh=self.device_mesh)():
            module = load_value_model(self.model_config, dtype=self.engine_config.model_dtype)
        apply_monkey_patch(
            model=module,
            use_remove_padding=self.use_remove_padding,
            ulysses_sp_size=self.ulysses_sequence_parallel_size,
        )
        return module
