"""Linear attention of an engine on the CPU: the Gated DeltaNet of Qwen3.5, in every dtype.

vLLM 0.24's kernels for it refuse float32 on a CPU, and give NaN for short prompts in bfloat16. Here
the functions stand that transformers has for want of kernels, by which the learner computes too.
vLLM looks its own up when it makes a model's first such layer; `use` is called before.
"""

from typing import Any

import torch
from torch.nn.functional import softplus
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention
from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import (
    causal_conv1d_torch,
    causal_conv1d_update_torch,
)
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.utils.torch_utils import LayerNameType

_prompts_rule: Any = torch_chunk_gated_delta_rule
_next_tokens_rule: Any = torch_recurrent_gated_delta_rule


def use() -> None:
    """Have the models that this process makes compute so."""
    replaced: tuple[Any, ...] = (gdn_attention, utils)
    gdn, packing = replaced
    gdn.cpu_gdn_attention_core = attend
    packing.dispatch_cpu_unquantized_gemm = pack_matrices


def pack_matrices(layer: torch.nn.Module, remove_weight: bool) -> None:
    """Pack a layer's weights for the processor as vLLM does, but for a convolution's.

    On processors with AMX vLLM packs those for its own kernel.
    """
    weight: Any = layer.weight
    if weight.ndim == 2:
        dispatch_cpu_unquantized_gemm(layer, remove_weight)


def attend(
    mixed_qkv: torch.Tensor,
    b: torch.Tensor,
    a: torch.Tensor,
    core_attn_out: torch.Tensor,
    layer_name: LayerNameType,
) -> None:
    """The operator `vllm::cpu_gdn_attention_core`.

    Args:
        mixed_qkv: Queries, keys and values of the batch's tokens, [tokens, channels]: first those
            of sequences that are at their next token, then those of prompts.
        b: Before the sigmoid, how much of each value is written, [tokens, value heads].
        a: What the decay is computed of, [tokens, value heads].
        core_attn_out: Is filled, [tokens, value heads, value size].
        layer_name: vLLM's name of the layer, which has its weights and its sequences' states.
    """
    context: Any = get_forward_context()
    if context.attn_metadata is None:  # vLLM tries how much memory a pass takes
        return
    layer = context.no_compile_layers[getattr(layer_name, "value", layer_name)]
    batch = context.attn_metadata[layer.prefix]
    slots: torch.Tensor = batch.non_spec_state_indices_tensor
    recent, states = layer.kv_cache
    if not is_conv_state_dim_first():
        recent = recent.transpose(-1, -2)
    states = states.transpose(-1, -2)  # [slots, value heads, key size, value size]
    convolution = (layer.conv1d.weight.squeeze(1), layer.conv1d.bias)
    decay = -layer.A_log.float().exp() * softplus(a.float() + layer.dt_bias)
    beta = b.sigmoid()

    def heads(channels: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values of tokens, each [1, tokens, value heads, size]."""
        query, key, value = layer.rearrange_mixed_qkv(channels)
        shared_by = value.shape[2] // key.shape[2]
        return [*(part.repeat_interleave(shared_by, 2) for part in (query, key)), value]

    next_tokens, prompts = batch.num_decodes, batch.num_prefills
    if next_tokens:
        own = slots[:next_tokens]
        before = recent[own]
        mixed = causal_conv1d_update_torch(
            mixed_qkv[:next_tokens, :, None], before, *convolution, layer.activation
        )
        recent[own] = before
        core, after = _next_tokens_rule(
            *(part.transpose(0, 1) for part in heads(mixed.squeeze(-1))),
            g=decay[:next_tokens, None],
            beta=beta[:next_tokens, None],
            initial_state=states[own],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        core_attn_out[:next_tokens] = core.squeeze(1)
        states[own] = after.to(states.dtype)
    if not prompts:
        return
    goes_on = batch.has_initial_state[next_tokens : next_tokens + prompts]
    own = slots[next_tokens : next_tokens + prompts]
    starts = batch.non_spec_query_start_loc[next_tokens : next_tokens + prompts + 1]
    bounds = starts.tolist()
    mixed = torch.empty_like(mixed_qkv)
    mixed[bounds[0] : bounds[-1]] = causal_conv1d_torch(
        mixed_qkv[bounds[0] : bounds[-1]].T,
        *convolution,
        recent,
        starts - bounds[0],
        own,
        goes_on,
        layer.activation,
    ).T
    for slot, begun, first, end in zip(own, goes_on, bounds, bounds[1:], strict=False):
        core, after = _prompts_rule(
            *heads(mixed[first:end]),
            g=decay[None, first:end],
            beta=beta[None, first:end],
            initial_state=states[slot, None] if begun else None,
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        core_attn_out[first:end] = core.squeeze(0)
        states[slot] = after.squeeze(0).to(states.dtype)
