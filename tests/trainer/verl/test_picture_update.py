"""One optimizer step of policy and critic on rows with pictures, against transformers, row by row.

What a row's pictures become on their way to the learner is verl's own code; the gradient that is
expected is computed from the stored pictures by the model's processor alone.
"""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from longhaul_core.types import Picture
from longhaul_trainer.config import CriticConfig, RunConfig
from longhaul_trainer.config.machine import ModelConfig
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from longhaul_trainer.models.vision import FAMILIES
from longhaul_trainer.verl.attention import SDPA, TORCH_FLASH, TORCH_FLASH_FAMILIES
from trainer.verl.picture_rows import (
    BLUE,
    RED,
    SHOWN,
    Plain,
    as_verl_sends,
    computing_with,
    picture_rows,
    plain_model,
)
from trainer.verl.test_critic_worker import Row as ValuedRow
from trainer.verl.test_critic_worker import batch_of
from trainer.verl.test_critic_worker import update as update_of_critic
from trainer.verl.updates import (
    LOSSES,
    MAX_ERROR,
    PADDING,
    Gradients,
    Row,
    error,
    expected_gradients,
    still_run,
    update,
)
from variation import assert_several
from verl_process import IMPORTS_VERL, one_critic, one_worker

pytestmark = IMPORTS_VERL

LEARNERS: tuple[tuple[str, Literal["cpu", "gpu"], str], ...] = (
    ("qwen2_5_vl", "cpu", SDPA),
    ("qwen2_5_vl", "gpu", SDPA),
    ("qwen2_5_vl", "gpu", TORCH_FLASH),
    ("qwen3_vl", "cpu", SDPA),
    ("qwen3_vl", "gpu", SDPA),
    ("qwen3_vl", "gpu", TORCH_FLASH),
    ("qwen3_vl_moe", "cpu", SDPA),
    ("qwen3_vl_moe", "gpu", TORCH_FLASH),
    ("qwen3_5", "gpu", SDPA),
    ("qwen3_5", "gpu", TORCH_FLASH),
    ("qwen3_5_moe", "cpu", SDPA),
    ("qwen3_5_moe", "gpu", TORCH_FLASH),
)
"""Families, each in the learner of one device, and by which attention there."""


@pytest.fixture(scope="module", params=LEARNERS, ids="-".join)
def learner(request: pytest.FixtureRequest) -> tuple[str, Literal["cpu", "gpu"], str]:
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learner: tuple[str, str, str]) -> Path:
    made = tmp_path_factory.getbasetemp() / f"learned-{learner[0]}"
    if not made.exists():
        written = tmp_path_factory.mktemp("model")
        write_tiny_vision_model(written, family=learner[0])
        written.rename(made)
    return made


@pytest.fixture(scope="module")
def plain(folder: Path) -> Plain:
    return plain_model(folder)


@pytest.fixture(scope="module")
def rows(folder: Path, plain: Plain, cpu_run: None) -> list[Row]:
    return picture_rows(folder, plain)


@pytest.fixture(scope="module")
def worker(
    folder: Path, plain: Plain, cpu_run: None, learner: tuple[str, Literal["cpu", "gpu"], str]
) -> Generator[Any]:
    _, device, attention = learner
    model = ModelConfig(path=str(folder), engine_dtype="float32")
    run = still_run().model_copy(update={"model": model})
    with computing_with(attention), one_worker(run, folder, device=device) as made:
        # Qwen2.5-VL's are padded: verl packs them by the package `flash-attn` alone.
        packed = attention == TORCH_FLASH and learner[0] != "qwen2_5_vl"
        assert made.actor.engine.use_remove_padding == packed
        yield made


@pytest.fixture(scope="module")
def expected(plain: Plain, rows: list[Row]) -> Gradients:
    return expected_gradients(plain, rows, LOSSES["clipped"])


def test_every_family_that_torch_s_kernels_are_taken_for_is_compared() -> None:
    compared = {family for family, _, attention in LEARNERS if attention == TORCH_FLASH}

    assert compared == TORCH_FLASH_FAMILIES & FAMILIES.keys()


@pytest.mark.parametrize("micro_batch_tokens", [4096, 140])
def test_the_gradient_is_that_of_the_rows_with_their_pictures(
    worker: Any,  # noqa: ANN401
    expected: Gradients,
    rows: list[Row],
    folder: Path,
    micro_batch_tokens: int,
) -> None:
    """Rows that only fill up have no picture, and come in micro-batches of their own as well."""
    found = gradients(
        worker,
        folder,
        [*rows, PADDING, PADDING],
        shown=[*SHOWN, [], []],
        micro_batch_tokens=micro_batch_tokens,
    )

    assert error(found, expected) <= MAX_ERROR
    reads = [name for name in expected if ".visual." in name]
    assert reads
    assert all(expected[name].abs().max() > 0 for name in reads if name.endswith("weight"))


def test_other_pictures_of_the_same_sizes_would_be_seen(
    worker: Any,  # noqa: ANN401
    expected: Gradients,
    rows: list[Row],
    folder: Path,
) -> None:
    """Two pictures change places: every token is as before."""
    found = gradients(worker, folder, rows, shown=[[BLUE], [RED], *SHOWN[2:]])

    assert error(found, expected) > 100 * MAX_ERROR


def gradients(
    worker: Any,  # noqa: ANN401
    folder: Path,
    rows: Sequence[Row],
    *,
    shown: Sequence[Sequence[Picture]],
    micro_batch_tokens: int = 4096,
) -> Gradients:
    """Of one update of rows with these pictures."""
    found, _ = update(
        worker,
        rows,
        LOSSES["clipped"],
        micro_batch_tokens=micro_batch_tokens,
        columns=as_verl_sends(folder, rows, shown),
    )
    return found


@pytest.fixture(scope="module")
def critic(
    worker: Any,  # noqa: ANN401  it has the group that the critic is on
    folder: Path,
    learner: tuple[str, Literal["cpu", "gpu"], str],
) -> Generator[Any]:
    """Of the same model; what it values before it learns is 0, and then no longer here."""
    run = RunConfig.model_validate(
        {
            "num_training_steps": 8,
            "tasks_per_training_step": 2,
            "model": {"path": str(folder), "engine_dtype": "float32"},
            "algorithm": {"name": "gae"},
            "critic": {"learning_rate": 1e-30},
            "optimizer": {"max_gradient_norm": 1e9},
        }
    )
    with computing_with(learner[2]), one_critic(run, folder, device=learner[1]) as made:
        head = made.engine.module.lm_head
        assert not any(weight.full_tensor().any() for weight in head.parameters())
        drawn = torch.Generator().manual_seed(3)
        for weight in head.parameters():
            torch.nn.init.normal_(weight.to_local(), std=0.5, generator=drawn)
        yield made


def test_a_critic_values_pictures_and_its_gradient_is_that_of_the_definition(
    critic: Any,  # noqa: ANN401
    plain: Plain,
    rows: list[Row],
    folder: Path,
) -> None:
    from verl.utils import tensordict_utils as tu

    columns = as_verl_sends(folder, rows, SHOWN)
    valued = [
        ValuedRow(
            prompt=row.prompt,
            response=row.reply,
            spans=((0, len(row.reply)),),
            old_values=(0.0,) * len(row.reply),
            targets=tuple(1.0 + place for place in range(len(row.reply))),
            weights=(0.25,) * len(row.reply),
            sample_index=number,
        )
        for number, row in enumerate(rows)
    ]
    (weight_1H, bias_1) = (p.full_tensor() for p in critic.engine.module.lm_head.parameters())
    plain.zero_grad()
    expected: list[torch.Tensor] = []
    for row in valued:
        hidden = plain(torch.tensor([[*row.prompt, *row.response]])).hidden_states[-1][0]
        values = (hidden @ weight_1H.T + bias_1)[len(row.prompt) - 1 : -1, 0]
        errors = values - torch.tensor(row.targets)
        (0.25 * errors**2 / 2).sum().backward()
        expected.append(values.detach())
    gradients = {
        name: p.grad.clone()
        for name, p in plain.named_parameters()
        if p.grad is not None and not name.startswith("lm_head.")
    }

    found, _ = update_of_critic(critic, valued, CriticConfig(), columns=columns)
    batch = batch_of(valued, columns=columns)
    tu.assign_non_tensor(batch, compute_loss=False)
    inferred = critic.infer_batch(batch)["values"].unbind()

    for row, values, all_values in zip(valued, expected, inferred, strict=True):
        assert_several(values.tolist(), at_least=len(row.response))
        of_response = all_values[len(row.prompt) - 1 : -1]
        torch.testing.assert_close(of_response, values, rtol=1e-3, atol=1e-4)
    assert error({name: found[name] for name in gradients}, gradients) <= MAX_ERROR
    assert any(".visual." in name and g.abs().max() > 0 for name, g in gradients.items())
