# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers and torch annotate little of what they return)
"""The learner's two attentions on a GPU, over rows that are packed into a micro-batch.

Run on a GPU: `python benchmarks/packed_attention.py [--layers N]`. It prints how far torch's
FlashAttention kernels are from attention in float64, and then, for micro-batches of several sizes,
tokens a second of forward and backward pass of a random Qwen2 as wide as Qwen2.5-1.5B, with
gradient checkpoints, in SDPA and in FlashAttention, and the ratio of the two.
"""

import argparse
import time
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForCausalLM, Qwen2Config

from longhaul_trainer.verl import torch_flash
from longhaul_trainer.verl.attention import SDPA, TORCH_FLASH

HEADS = (
    (12, 2, 128, True),
    (16, 8, 128, True),
    (16, 16, 64, False),
    (9, 3, 64, True),
    (16, 16, 72, False),
    (4, 2, 80, True),
)
"""Heads of queries and of keys, numbers of a head, and whether a token reads none after it."""
LENGTHS = (1, 7, 300, 512, 45)
MICRO_BATCHES = (4096, 8192, 16384, 32768)
ROW_TOKENS = 1000
REPEATS = 3


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch finds no GPU; its FlashAttention kernels need one")
    torch_flash.register()
    torch.manual_seed(0)
    print(
        "heads, heads of keys, size, causal: relative error of output, and of the three gradients"
    )
    for heads in HEADS:
        print(*heads, *(f"{value:.1e}" for value in kernel_errors(*heads)))
    seconds = {name: times(name, arguments.layers) for name in (SDPA, TORCH_FLASH)}
    print(f"tokens of a micro-batch: tokens a second in {SDPA}, in {TORCH_FLASH}, ratio")
    for tokens in MICRO_BATCHES:
        masked, skipping = (seconds[name][tokens] for name in (SDPA, TORCH_FLASH))
        print(f"{tokens}: {tokens / masked:.0f}, {tokens / skipping:.0f}, {masked / skipping:.2f}")


def kernel_errors(heads: int, heads_of_keys: int, size: int, causal: bool) -> list[float]:
    """Of output and gradients in bfloat16, against float64, row by row."""
    begins = torch.tensor([0, *LENGTHS], device="cuda").cumsum(0)
    parts = [
        torch.randn(sum(LENGTHS), count, size, device="cuda").bfloat16().requires_grad_()
        for count in (heads, heads_of_keys, heads_of_keys)
    ]
    weights = torch.randn(sum(LENGTHS), heads, size, device="cuda").bfloat16()
    longest = max(LENGTHS)
    found = torch_flash.attend_packed(
        *parts,
        cu_seqlens_q=begins,
        cu_seqlens_k=begins,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        causal=causal,
    )
    exact = [part.detach().double().requires_grad_() for part in parts]
    rows = [
        exact_attention(*(part[begin:end].transpose(0, 1)[None] for part in exact), causal=causal)
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)
    ]
    expected = torch.cat(rows)
    pairs = zip(
        (found, *torch.autograd.grad(found, parts, weights)),
        (expected, *torch.autograd.grad(expected, exact, weights.double())),
        strict=True,
    )
    return [float((ours.double() - theirs).norm() / theirs.norm()) for ours, theirs in pairs]


def exact_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool
) -> torch.Tensor:
    """Of one row, `(1, heads, tokens, size)`; the output is `(tokens, heads, size)`."""
    out = scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    return out[0].transpose(0, 1)


def times(attention: str, layers: int) -> dict[int, float]:
    """Seconds of forward and backward pass, the least of some, by tokens of a micro-batch."""
    config = Qwen2Config(
        vocab_size=32_000,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    with torch.device("cuda"):
        model: Any = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation=attention
        )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    return {tokens: seconds_of(model, tokens) for tokens in MICRO_BATCHES}


def seconds_of(model: Any, tokens: int) -> float:  # noqa: ANN401  transformers'
    """Of one micro-batch of this model; the first pass, which loads kernels, is not counted."""
    drawn = torch.Generator().manual_seed(3)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        length = int(torch.randint(ROW_TOKENS // 2, ROW_TOKENS * 3 // 2, (1,), generator=drawn))
        lengths.append(min(length, tokens - sum(lengths)))
    positions = torch.cat([torch.arange(length) for length in lengths])[None].cuda()
    ids = torch.randint(model.config.vocab_size, (1, tokens), generator=drawn).cuda()
    taken: list[float] = []
    for _ in range(1 + REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        hidden = model.model(input_ids=ids, position_ids=positions, use_cache=False)[0]
        hidden.float()[..., :64].square().mean().backward()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
        model.zero_grad()
    return min(taken[1:])


if __name__ == "__main__":
    main()
