"""verl's FSDP engine with one value for each token, for a machine without an accelerator.

The model is loaded as on a GPU (`critic_worker`).

Shapes: B rows, L tokens of the longest row.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from transformers.modeling_outputs import TokenClassifierOutput
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.workers.engine.base import EngineRegistry

from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine, left_padded_places
from longhaul_trainer.verl.critic_worker import load_value_model
from longhaul_trainer.verl.pictures import reads_pictures


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CriticEngine(ResponseLogitsEngine):
    """A critic: the policy's kind of model, whose head gives one number for each token."""

    # verl registers the classes through a decorator that hides their types.
    model_config: Any
    engine_config: Any

    def _build_module(self) -> torch.nn.Module:
        module = load_value_model(self.model_config, dtype=self.engine_config.model_dtype)
        if reads_pictures(module.config):
            apply_monkey_patch(model=module, use_remove_padding=False)
        return module

    def prepare_model_inputs(
        self, micro_batch: TensorDict
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Left-padded rows."""
        engine: Any = super()
        model_inputs, output_args = engine.prepare_model_inputs(micro_batch)
        # A critic's head is small: it reads every token.
        model_inputs.pop("logits_to_keep", None)
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
        ids: Any = micro_batch["input_ids"]
        values_N = values_BL[left_padded_places(ids.offsets())]
        return {"values": torch.nested.nested_tensor_from_jagged(values_N, ids.offsets())}
