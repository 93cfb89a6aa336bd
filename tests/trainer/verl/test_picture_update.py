"""One optimizer step of policy and critic on rows with pictures, against transformers, row by row.

What a row's pictures become on their way to the learner is verl's own code; the gradient that is
expected is computed from the stored pictures by the model's processor alone.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from longhaul_core.types import Message, Picture
from longhaul_trainer.config import CriticConfig, RunConfig
from longhaul_trainer.config.machine import ModelConfig
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from longhaul_trainer.rendering.pictures import PictureReader, load_picture_reader
from longhaul_trainer.rendering.renderer import load_renderer
from longhaul_trainer.verl.attention import ATTENTION, SDPA, TORCH_FLASH
from pictures import png
from trainer.verl.naive_attention import naive_varlen_attention
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
    make_rows,
    reply_logprobs,
    still_run,
    update,
)
from variation import assert_several
from verl_process import IMPORTS_VERL, one_critic, one_worker

pytestmark = IMPORTS_VERL

RED, BLUE = (Picture.of(png(colour, width=160, height=96)) for colour in ("red", "blue"))
GREEN = Picture.of(png("green", width=60, height=130))


def asked(*parts: str | Picture) -> Message:
    return Message(role="user", content=parts)


PROMPTS = (
    (asked("Where?", RED),),
    (asked(BLUE, "Which?"),),
    (asked("Where?", RED), Message(role="assistant", content=" left"), asked("Now?", GREEN)),
    (asked("No picture here."),),
)
SHOWN = ([RED], [BLUE], [RED, GREEN], [])


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
)
"""Families, each in the learner of one device, and by which attention there."""


@pytest.fixture(scope="module", params=LEARNERS, ids="-".join)
def learner(request: pytest.FixtureRequest) -> Generator[tuple[str, Literal["cpu", "gpu"], str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longhaul_trainer.verl.torch_flash.varlen_attn", naive_varlen_attention)
        yield request.param


def settings_of_verl(learner: tuple[str, Literal["cpu", "gpu"], str]) -> dict[str, str]:
    """The table `[verl]` of a run on GPUs; a CPU has one attention."""
    return {ATTENTION: learner[2]} if learner[1] == "gpu" else {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, learner: tuple[str, str, str]) -> Path:
    made = tmp_path_factory.mktemp("model")
    write_tiny_vision_model(made, family=learner[0])
    return made


@dataclass
class Plain:
    """transformers' model, which is shown the pictures that belong to a prompt."""

    model: Any
    processor: Any
    reader: PictureReader
    shown: dict[int, Sequence[Picture]]
    """By the length of the prompt and reply, which differ from row to row."""

    def __call__(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        pictures = self.shown[tokens.shape[1]]
        if not pictures:
            return self.model(input_ids=tokens, output_hidden_states=True)
        images = [self.reader.image(picture) for picture in pictures]
        read = self.processor.image_processor(images, return_tensors="pt")
        places = (tokens == self.processor.image_token_id).int()
        return self.model(
            input_ids=tokens, mm_token_type_ids=places, output_hidden_states=True, **read
        )

    def zero_grad(self) -> None:
        self.model.zero_grad()

    def named_parameters(self) -> Any:  # noqa: ANN401
        return self.model.named_parameters()


@pytest.fixture(scope="module")
def plain(folder: Path) -> Plain:
    model: Any = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    for part in model.modules():
        part.forward = part.forward  # keeps it: verl replaces those of the classes
    reader = load_picture_reader(folder)
    assert reader is not None
    return Plain(model, AutoProcessor.from_pretrained(folder), reader, {})


@pytest.fixture(scope="module")
def rows(folder: Path, plain: Plain, cpu_run: None) -> list[Row]:
    """Rows of the prompts above; the replies of `make_rows`."""
    render = load_renderer(folder).render
    lengths = ((9, 3), (40, 1), (17, 8), (5, 5))
    prompts = [render(messages) for messages in PROMPTS]
    plain.shown |= dict.fromkeys((prompt + reply for prompt, reply in lengths), ())
    drawn = [
        replace(row, prompt=prompt)
        for row, prompt in zip(make_rows(plain, lengths=lengths), prompts, strict=True)
    ]
    plain.shown.clear()
    for row, pictures in zip(drawn, SHOWN, strict=True):
        plain.shown[len(row.prompt + row.reply)] = pictures
    assert len(plain.shown) == len(drawn), "the lengths must tell the rows apart"
    return [with_own_ratios(plain, row) for row in drawn]


def with_own_ratios(plain: Plain, row: Row) -> Row:
    """The row with ratios about 1 for what it is shown."""
    with torch.no_grad():
        now = reply_logprobs(plain, row.prompt, row.reply)[0].tolist()
    old = tuple(p + (0.05 if i % 2 else -0.6) for i, p in enumerate(now))
    return replace(row, old_logprobs=old, behavior_logprobs=old)


@pytest.fixture(scope="module")
def worker(
    folder: Path, plain: Plain, cpu_run: None, learner: tuple[str, Literal["cpu", "gpu"], str]
) -> Generator[Any]:
    _, device, attention = learner
    of_run = {
        "model": ModelConfig(path=str(folder), engine_dtype="float32"),
        "verl": settings_of_verl(learner),
    }
    with one_worker(still_run().model_copy(update=of_run), folder, device=device) as made:
        # Qwen2.5-VL's are padded: verl packs them by the package `flash-attn` alone.
        packed = attention == TORCH_FLASH and learner[0] != "qwen2_5_vl"
        assert made.actor.engine.use_remove_padding == packed
        yield made


def as_verl_sends(folder: Path, rows: Sequence[Row], shown: Sequence[Sequence[Picture]]) -> Any:  # noqa: ANN401
    """Patches and positions of rows, by the code of verl's agent-loop worker."""
    from verl.experimental.agent_loop import AgentLoopWorker
    from verl.utils import hf_processor

    processor: Any = hf_processor(str(folder))
    reader = load_picture_reader(folder)
    assert reader is not None
    of_verl: Any = AgentLoopWorker
    worker = SimpleNamespace(
        processor=processor,
        tokenizer=processor.tokenizer,
        _get_mm_processor_kwargs=lambda audios: {},  # pyright: ignore[reportUnknownLambdaType]
    )
    patches: list[Any] = []
    positions: list[torch.Tensor] = []
    for row, pictures in zip(rows, shown, strict=True):
        tokens = torch.tensor([*row.prompt, *row.reply])
        images = [reader.image(picture) for picture in pictures]
        output = SimpleNamespace(
            multi_modal_data={"images": images} if images else None, mm_processor_kwargs=None
        )
        read = of_verl._compute_multi_modal_inputs(worker, output, tokens)
        positions.append(
            of_verl._compute_position_ids(
                worker, tokens.unsqueeze(0), torch.ones_like(tokens).unsqueeze(0), read
            ).squeeze(0)
        )
        patches.append(read)
    return {
        "position_ids": torch.nested.as_nested_tensor(positions, layout=torch.jagged),
        "multi_modal_inputs": patches,
    }


@pytest.fixture(scope="module")
def expected(plain: Plain, rows: list[Row]) -> Gradients:
    return expected_gradients(plain, rows, LOSSES["clipped"])


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
            "verl": settings_of_verl(learner),
        }
    )
    with one_critic(run, folder, device=learner[1]) as made:
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
