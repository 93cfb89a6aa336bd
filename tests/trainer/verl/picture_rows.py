"""Rows with pictures, as verl sends them to the learner, and the model that is compared with."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from longhaul_core.types import Message, Picture
from longhaul_trainer.config import RunConfig
from longhaul_trainer.rendering.pictures import PictureReader, load_picture_reader
from longhaul_trainer.rendering.renderer import load_renderer
from pictures import png
from trainer.verl.updates import Row, make_rows, reply_logprobs

RED, BLUE = (Picture.of(png(colour, width=160, height=96)) for colour in ("red", "blue"))
GREEN = Picture.of(png("green", width=60, height=130))


def asked(*parts: str | Picture) -> Message:
    return Message(role="user", content=parts)


@contextmanager
def computing_with(attention: str) -> Generator[None]:
    """Have learners of GPUs that are made in the block compute with it, in float32 too."""

    def chosen(run: RunConfig) -> str:
        return attention

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longhaul_trainer.verl.settings.gpu_attention", chosen)
        yield


PROMPTS = (
    (asked("Where?", RED),),
    (asked(BLUE, "Which?"),),
    (asked("Where?", RED), Message(role="assistant", content=" left"), asked("Now?", GREEN)),
    (asked("No picture here."),),
)
SHOWN = ([RED], [BLUE], [RED, GREEN], [])


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


def plain_model(folder: Path) -> Plain:
    """Transformers' own, which verl's changes to its classes do not reach."""
    model: Any = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    for part in model.modules():
        part.forward = part.forward  # keeps it: verl replaces those of the classes
    reader = load_picture_reader(folder)
    assert reader is not None
    return Plain(model, AutoProcessor.from_pretrained(folder), reader, {})


def picture_rows(folder: Path, plain: Plain) -> list[Row]:
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


def no_settings(audios: object) -> dict[str, object]:
    """Of the processor, which verl's worker would be asked for."""
    return {}


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
        _get_mm_processor_kwargs=no_settings,
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
