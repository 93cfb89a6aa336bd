"""verl's FSDP engine with one value for each token, for a machine without an accelerator.

verl's own loads a critic with attention kernels that need a GPU, and draws its last layer at
random. Here the last layer begins at zero: until the critic has learnt something, nothing is
expected, and the same run begins with the same critic.

Shapes: B rows, L tokens of the longest row.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from transformers import AutoModelForTokenClassification
from transformers.modeling_outputs import TokenClassifierOutput
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.base import EngineRegistry

from longhaul_trainer.verl.cpu.learner import ReplyLogitsEngine


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class ValueEngine(ReplyLogitsEngine):
    """A critic: the policy's kind of model, whose head gives one number for each token."""

    # verl registers the classes through a decorator that hides their types.
    model_config: Any
    engine_config: Any

    def _build_module(self) -> torch.nn.Module:
        settings = self.model_config
        config = settings.hf_config
        config.num_labels = 1
        config.classifier_dropout = 0.0
        module = AutoModelForTokenClassification.from_pretrained(
            settings.local_path,
            config=config,
            dtype=PrecisionType.to_dtype(self.engine_config.model_dtype),
            attn_implementation="sdpa",
        )
        torch.nn.init.zeros_(module.score.weight)
        torch.nn.init.zeros_(module.score.bias)
        if settings.enable_gradient_checkpointing:
            module.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
        return module

    def prepare_model_inputs(
        self, micro_batch: TensorDict
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Left-padded rows."""
        engine: Any = super()
        model_inputs, output_args = engine.prepare_model_inputs(micro_batch)
        del model_inputs["logits_to_keep"]  # a critic's head is small: it reads every token
        return model_inputs, output_args

    def prepare_model_outputs(
        self,
        output: TokenClassifierOutput,
        output_args: dict[str, Any],
        micro_batch: TensorDict,
        logits_processor_func: object,
    ) -> dict[str, torch.Tensor]:
        """The value after each token of each row."""
        assert output.logits is not None
        values_BL = output.logits.float().squeeze(-1)
        lengths = [len(row) for row in micro_batch["input_ids"].unbind(0)]
        rows = [row[-length:] for row, length in zip(values_BL, lengths, strict=True)]
        return {"values": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}
