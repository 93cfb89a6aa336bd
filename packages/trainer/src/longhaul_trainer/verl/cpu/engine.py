"""Weight updates of a running vLLM engine on the CPU.

vLLM packs linear weights for the processor after loading and drops the originals, so
verl's update finds no parameter to write into. vLLM's own layer-wise reload restores
the unpacked layout, takes the new weights and packs again; this extension wraps verl's
update in it.

An engine's worker imports this module before it makes its model, and so has experts and linear
attention in float32 too.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import ModelConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.fused_moe import cpu_fused_moe
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)

from longhaul_trainer.verl.cpu import linear_attention
from longhaul_trainer.verl.engine_updates import PrivateWorkerExtension

# vLLM 0.24 makes an object of it in every pass, for which a pass outside of a model's making lacks
# the configuration.
_experts: Any = cpu_fused_moe
_experts._CPU_MOE_ACT_FN[MoEActivation.SILU] = SiluAndMul.forward_native
linear_attention.use()


class CpuWorkerExtension(PrivateWorkerExtension):
    """verl's worker extension with weights reloaded layer by layer."""

    def update_weights_from_ipc(
        self,
        peft_config: dict[str, Any] | None = None,
        base_sync_done: bool = False,
        use_shm: bool = False,
    ) -> None:
        """Receive one full set of weights from the trainer and put it in force."""
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
            BucketedWeightReceiver,
        )

        runner: Any = getattr(self, "model_runner")  # noqa: B009  of the vLLM worker it extends
        model = runner.get_model()
        initialize_layerwise_reload(model)

        def load(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            # The loader keeps tensors until a layer is complete, and these alias the bucket
            # that the sender overwrites next.
            model.load_weights((name, tensor.clone()) for name, tensor in weights)

        BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=self.device, use_shm=use_shm
        ).receive_weights(on_bucket_received=load)
        finish_reload(model, runner.model_config)


def finish_reload(model: torch.nn.Module, model_config: ModelConfig) -> None:
    """Pack the weights that were loaded, those of a tied output layer too.

    An output layer that shares the embedding's weights has none of its own in a checkpoint,
    so the reload leaves it alone; its packed copy would stay that of the first weights.
    """
    finalize_layerwise_reload(model, model_config)
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
