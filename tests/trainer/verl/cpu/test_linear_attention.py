"""An engine on a CPU keeps the weights of convolutions as they were published."""

import importlib
from typing import Any

import pytest
import torch

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL


def test_a_convolution_is_not_packed_where_the_processor_has_amx(
    cpu_run: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packed form is for a kernel of vLLM that is not used; a matrix is packed as by vLLM."""
    utils: Any = importlib.import_module("vllm.model_executor.layers.utils")
    ours: Any = importlib.import_module("longhaul_trainer.verl.cpu.linear_attention")
    linear: Any = importlib.import_module("vllm.model_executor.layers.linear")
    attention: Any = importlib.import_module(
        "vllm.model_executor.layers.mamba.ops.cpu.gdn_attention"
    )
    packed: list[torch.Size] = []

    def pack(layer: Any, remove_weight: bool) -> None:  # noqa: ANN401  as vLLM's
        packed.append(layer.weight.shape)

    monkeypatch.setattr(ours, "dispatch_cpu_unquantized_gemm", pack)
    for module, name in (
        (utils, "dispatch_cpu_unquantized_gemm"),
        (attention, "cpu_gdn_attention_core"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # is put back
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)

    ours.use()

    for shape in ((6, 1, 4), (8, 4)):
        layer: Any = torch.nn.Module()
        layer.weight = torch.nn.Parameter(torch.randn(shape), requires_grad=False)
        before = layer.weight.clone()
        linear.UnquantizedLinearMethod().process_weights_after_loading(layer)
        assert torch.equal(layer.weight, before)
    assert packed == [torch.Size((8, 4))]
