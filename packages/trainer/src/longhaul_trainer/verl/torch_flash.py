"""FlashAttention by torch's own kernels, for transformers' models without the package `flash-attn`.

`torch.nn.attention.varlen` computes attention within rows that are packed one after the other, and
skips what is outside them. transformers finds out where rows begin (from position numbers, a mask
of padding, or the lengths of pictures) and hands that to two functions, which it looks up by the
name of an implementation. `register` names these two `TORCH_FLASH`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import modeling_flash_attention_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from longhaul_core.errors import ConfigError
from longhaul_trainer.verl.attention import ATTENTION, TORCH_FLASH

_transformers: Any = modeling_flash_attention_utils


def register() -> None:
    """Make `TORCH_FLASH` an attention of transformers in this process. Safe to call twice."""
    if TORCH_FLASH in ALL_ATTENTION_FUNCTIONS.valid_keys():
        return
    ALL_ATTENTION_FUNCTIONS.register(TORCH_FLASH, flash_attention_forward)
    ALL_MASK_ATTENTION_FUNCTIONS.register(TORCH_FLASH, flash_attention_mask)
    theirs = _transformers._lazy_imports

    def functions(implementation: str | None, *args: object, **kwargs: object) -> object:
        if implementation != TORCH_FLASH:
            return theirs(implementation, *args, **kwargs)
        cached = None  # attention over a cache of keys: the learner has none
        return attend, attend_packed, cached, _transformers._pad_input, _transformers._unpad_input

    _transformers._lazy_imports = functions


def attend_packed(  # noqa: PLR0913  flash-attn's parameters
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | torch.Tensor,
    max_seqlen_k: int | torch.Tensor,
    causal: bool = False,
    softmax_scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    dropout_p: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention within each of some rows, with the names and defaults of flash-attn's function.

    Args:
        query: `(tokens, heads, size)` in float16 or bfloat16: one row after the other.
        key: The same with fewer heads, each of which serves as many of the query's.
        value: As `key`.
        cu_seqlens_q: `(rows + 1,)`: where each row begins, and the number of tokens.
        cu_seqlens_k: The same of `key`.
        max_seqlen_q: Tokens of the longest row.
        max_seqlen_k: The same of `key`.
        causal: Whether a token reads none after it.
        softmax_scale: Factor of the products; None for one over the root of `size`.
        window_size: How many tokens before and after itself one reads; -1 for all.
        dropout_p: 0; torch has none here.
        softcap: None; torch has none here.
        s_aux: None; torch has no sinks here.

    Returns:
        As `query`.

    Raises:
        ConfigError: If the model asks for what torch's kernels have not.
    """
    if dropout_p > 0 or softcap or s_aux is not None:
        raise ConfigError(
            f"this model's attention has dropout ({dropout_p}), a cap of its logits ({softcap}) or "
            f'sinks, which torch\'s FlashAttention has not; set [verl] {ATTENTION} = "eager"'
        )
    out = varlen_attn(
        query,
        key,
        value,
        cu_seqlens_q.to(torch.int32),
        cu_seqlens_k.to(torch.int32),
        int(max_seqlen_q),
        int(max_seqlen_k),
        scale=softmax_scale,
        window_size=(window_size[0], 0) if causal else window_size,
    )
    assert isinstance(out, torch.Tensor), "nothing beside the output is asked for"
    return out


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    **settings: Any,  # noqa: ANN401  of `attend_packed`
) -> torch.Tensor:
    """As `attend_packed`, of rows of one length: `(rows, tokens, heads, size)`."""
    rows, tokens = query.shape[:2]
    begins = torch.arange(0, (rows + 1) * tokens, tokens, device=query.device)
    packed = attend_packed(
        *(part.flatten(0, 1) for part in (query, key, value)),
        cu_seqlens_q=begins,
        cu_seqlens_k=begins,
        max_seqlen_q=tokens,
        max_seqlen_k=tokens,
        **settings,
    )
    return packed.unflatten(0, (rows, tokens))
