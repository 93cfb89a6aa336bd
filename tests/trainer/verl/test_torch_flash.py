"""Tests for `longhaul_trainer.verl.torch_flash`.

torch's kernels compute on GPUs alone: attention by its definition is in their place. What they gave
on a GPU is in docs/guides/gpus.md.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from longhaul_core.errors import ConfigError
from longhaul_trainer.models.vision import FAMILIES
from longhaul_trainer.verl import torch_flash
from longhaul_trainer.verl.attention import TORCH_FLASH, TORCH_FLASH_FAMILIES
from naive_attention import naive_varlen_attention
from variation import assert_several

LENGTHS = (5, 1, 12, 7)


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_flash.register()
    torch_flash.register()
    monkeypatch.setattr(torch_flash, "varlen_attn", naive_varlen_attention)


def model(attention: str, *, window: int | None = None, family: str = "mistral") -> Any:  # noqa: ANN401
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family,
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        pad_token_id=0,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    of_transformers: Any = AutoModelForCausalLM
    return of_transformers.from_config(config, attn_implementation=attention)


def rows() -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.randint(50, (length,), generator=drawn) for length in LENGTHS]


def learned(made: Any, logits_VT: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    """The logits of all rows, and the gradient of a weighted sum of them."""
    logits = torch.cat([part.reshape(-1, 50) for part in logits_VT])
    weights = torch.linspace(-1, 1, logits.numel()).reshape(logits.shape)
    (logits * weights).sum().backward()
    return logits.detach(), made.get_input_embeddings().weight.grad


@pytest.mark.parametrize(
    ("family", "window"),
    [
        ("mistral", 4),
        *((family, None) for family in sorted(TORCH_FLASH_FAMILIES - FAMILIES.keys())),
    ],
)
def test_packed_rows_are_read_as_if_each_were_alone(family: str, window: int | None) -> None:
    """Of every family that reads text; those that read pictures are in `test_picture_update`."""
    alone, packed = (
        model(attention, window=window, family=family) for attention in ("sdpa", TORCH_FLASH)
    )
    expected, expected_gradient = learned(alone, [alone(row[None]).logits for row in rows()])

    found, gradient = learned(
        packed,
        [
            packed(
                torch.cat(rows())[None],
                position_ids=torch.cat([torch.arange(length) for length in LENGTHS])[None],
                use_cache=False,
            ).logits
        ],
    )

    assert_several(expected.flatten().tolist())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def test_padded_rows_are_read_without_their_padding() -> None:
    alone, padded = model("sdpa", window=None), model(TORCH_FLASH, window=None)
    longest = max(LENGTHS)
    tokens = torch.stack(
        [torch.nn.functional.pad(row, (longest - len(row), 0), value=9) for row in rows()]
    )
    is_token = torch.stack([torch.arange(longest) >= longest - length for length in LENGTHS])
    positions = (is_token.long().cumsum(-1) - 1).clamp(min=0)

    found = padded(tokens, attention_mask=is_token, position_ids=positions, use_cache=False).logits

    for row, logits, is_its in zip(rows(), found, is_token, strict=True):
        torch.testing.assert_close(logits[is_its], alone(row[None]).logits[0], rtol=1e-4, atol=1e-5)


def test_rows_of_one_length_need_no_bounds() -> None:
    tokens = torch.stack([rows()[2], rows()[2].flip(0)])

    found = model(TORCH_FLASH, window=None)(tokens, use_cache=False).logits

    expected = model("sdpa", window=None)(tokens, use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "asked", [{"dropout_p": 0.1}, {"softcap": 30.0}, {"s_aux": torch.zeros(2)}], ids=str
)
def test_attention_that_the_kernels_have_not_is_refused(asked: dict[str, Any]) -> None:
    rows_of_one = torch.zeros(1, 3, 2, 8)

    with pytest.raises(ConfigError, match="which torch's FlashAttention has not; set"):
        torch_flash.attend(rows_of_one, rows_of_one, rows_of_one, causal=True, **asked)
