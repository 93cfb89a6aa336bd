"""Attention by its definition, in the place of the kernels that torch has for GPUs alone."""

from itertools import pairwise

import torch


def naive_varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """As `torch.nn.attention.varlen.varlen_attn`, a row and a head after the other."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == int(cu_seq_q.diff().max())
    assert max_k == int(cu_seq_k.diff().max())
    assert int(cu_seq_q[-1]) == len(query)
    before, after = window_size
    heads_of_a_key = query.shape[1] // key.shape[1]
    factor = query.shape[2] ** -0.5 if scale is None else scale
    out: list[torch.Tensor] = []
    for begin, end in pairwise(int(place) for place in cu_seq_q):
        away = torch.arange(end - begin)[None] - torch.arange(end - begin)[:, None]
        hidden = torch.zeros_like(away, dtype=torch.bool)
        if after >= 0:
            hidden |= away > after
        if before >= 0:
            hidden |= away < -before
        heads: list[torch.Tensor] = []
        for head in range(query.shape[1]):
            keys = key[begin:end, head // heads_of_a_key]
            products = factor * query[begin:end, head] @ keys.T
            weights = products.masked_fill(hidden, -torch.inf).softmax(-1)
            heads.append(weights @ value[begin:end, head // heads_of_a_key])
        out.append(torch.stack(heads, dim=1))
    return torch.cat(out)
