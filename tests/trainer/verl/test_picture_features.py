# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers annotates little of what it returns)
"""Models that have a part for pictures compute, in Longhaul's engine, what they do in verl's."""

from collections.abc import Generator
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict

from longhaul_trainer.models.tiny_vision import tiny_vision_model
from verl_process import IMPORTS_VERL, keep_models

pytestmark = IMPORTS_VERL

FAMILIES = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
TEXT = torch.arange(20, 40).unsqueeze(0)


@pytest.fixture(autouse=True)
def as_verl_found_it(cpu_run: None) -> Generator[None]:
    """What verl replaces in classes of transformers is put back."""
    with pytest.MonkeyPatch.context() as patch:
        keep_models(patch)
        yield


def model_of(family: str) -> Any:  # noqa: ANN401  transformers' own class
    return tiny_vision_model(family).eval()


def with_places(model: Any) -> torch.Tensor:  # noqa: ANN401
    """Tokens with places for a picture of 64 by 64 pixels."""
    marks = model.config
    begin, end = marks.vision_start_token_id, marks.vision_end_token_id
    return torch.tensor([[25, 26, begin, *[marks.image_token_id] * 4, end, 27]])


def logits(model: torch.nn.Module, tokens: torch.Tensor, **pictures: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(tokens.shape[1]).expand(4, 1, -1)
    with torch.no_grad():
        return model(input_ids=tokens, position_ids=positions, use_cache=False, **pictures).logits


def in_an_engine(model: torch.nn.Module) -> torch.nn.Module:
    """The model as Longhaul's engine has it, where verl's built it."""
    from verl.workers.engine.base import BaseEngine

    from longhaul_trainer.verl.pictures import PicturesAsFeatures

    class Engine(BaseEngine):
        def _build_module(self) -> torch.nn.Module:
            return model

    class OfLonghaul(PicturesAsFeatures, Engine):
        pass

    of_longhaul: Any = OfLonghaul()  # pyright: ignore[reportAbstractUsage]
    return of_longhaul._build_module()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("adapted", [False, True])
def test_text_is_read_as_in_verls_engine(family: str, *, adapted: bool) -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    model = model_of(family)
    apply_monkey_patch(model, use_remove_padding=False)
    known = logits(model, TEXT)

    built: Any = in_an_engine(model)
    if adapted:  # an adapter that is not trained yet changes nothing
        built = get_peft_model(built, LoraConfig(r=2, target_modules=["q_proj", "o_proj"]))

    assert torch.equal(logits(built, TEXT), known)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_picture_is_read_as_in_verls_engine(family: str) -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    model = model_of(family)
    tokens = with_places(model)
    apply_monkey_patch(model, use_remove_padding=False)
    shown, other = (
        {
            "pixel_values": torch.randn(16, 3 * 2 * 16 * 16),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
        }
        for _ in range(2)
    )
    known = logits(model, tokens, **shown)
    assert not torch.allclose(logits(model, tokens, **other), known), "the picture is not read"

    built = in_an_engine(model)

    assert torch.equal(logits(built, tokens, **shown), known)


def test_features_of_several_layers_of_qwen3_vl_are_read() -> None:
    """Those that verl hands on beside the last layer's change what is computed."""
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    model = model_of("qwen3_vl")
    tokens = with_places(model)
    apply_monkey_patch(model, use_remove_padding=False)
    shown = {
        "pixel_values": torch.randn(16, 3 * 2 * 16 * 16),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }
    built = in_an_engine(model)
    known = logits(built, tokens, **shown)

    with torch.no_grad():
        model.model.visual.deepstack_merger_list[0].linear_fc2.weight.zero_()

    assert not torch.allclose(logits(built, tokens, **shown), known)


def test_rows_whose_tokens_have_one_position_each_are_padded_as_they_are() -> None:
    """So verl counts for a folder with a model of pictures and no processor."""
    from longhaul_trainer.verl.cpu.learner import ResponseLogitsEngine

    learner: Any = ResponseLogitsEngine.__new__(ResponseLogitsEngine)
    learner.module = model_of("qwen3_5")
    rows = [torch.arange(1, 6), torch.arange(1, 4)]
    columns = {
        "input_ids": rows,
        "position_ids": [torch.arange(len(row)) for row in rows],
        "loss_mask": [torch.tensor([0, 1]) for _ in rows],
    }
    of_rows = {
        name: torch.nested.as_nested_tensor(column, layout=torch.jagged)
        for name, column in columns.items()
    }

    inputs, _ = learner.prepare_model_inputs(TensorDict(of_rows, batch_size=[len(rows)]))

    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]


@pytest.mark.parametrize("family", [*FAMILIES, "qwen2_vl", "qwen2_5_vl"])
def test_equal_pictures_of_a_micro_batch_are_read_once(family: str) -> None:
    """Features and their gradient are those of reading each picture where it stands."""
    from longhaul_trainer.verl.pictures import read_equal_pictures_once

    model = model_of(family)
    visual = model.model.visual
    numbers = 3 * 2 * visual.config.patch_size**2
    one, other = (torch.randn(16, numbers) for _ in range(2))
    shapes = torch.tensor([[1, 4, 4], [1, 4, 4], [1, 2, 8], [1, 4, 4], [1, 4, 4]])
    shown = torch.cat([one, other, one, other, one])
    known = visual(shown, grid_thw=shapes)
    wanted = [known.pooler_output, *(getattr(known, "deepstack_features", None) or [])]
    weight = next(parameter for parameter in visual.parameters() if parameter.dim() > 1)
    scale = torch.randn(wanted[0].shape)
    (gradient,) = torch.autograd.grad((wanted[-1] * scale).sum(), weight)
    num_read: list[int] = []

    def count(_: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        num_read.append(given[0].shape[0])

    visual.patch_embed.register_forward_pre_hook(count)

    read_equal_pictures_once(model)
    returned = visual(shown, grid_thw=shapes)

    found = [getattr(returned, "pooler_output", returned)]
    found += getattr(returned, "deepstack_features", None) or []
    (found_gradient,) = torch.autograd.grad((found[-1] * scale).sum(), weight)
    assert num_read == [3 * 16]
    assert not torch.allclose(wanted[0][:4], wanted[0][8:12]), "proportions change what is read"
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found_gradient, gradient, rtol=1e-3, atol=1e-4)
