# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Prompts with pictures as tokens, against the model's own processor."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoProcessor

from longhaul_core.types import Call, Message, Picture, SampledTokens
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.pictures import PictureReader, load_picture_reader, pictures_of
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer, load_renderer
from pictures import png

RED = Picture.of(png("red", width=160, height=96))
BLUE = Picture.of(png("blue", width=500, height=310))
NO_TEXT = Picture.of(png("green", width=31, height=29))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_model("tiny-vision", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def processor(folder: Path) -> Any:  # noqa: ANN401  transformers' own class
    return AutoProcessor.from_pretrained(folder)


@pytest.fixture(scope="module")
def reader(folder: Path) -> PictureReader:
    found = load_picture_reader(folder)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def renderer(folder: Path) -> ChatTemplateRenderer:
    return load_renderer(folder)


CHATS = {
    "one picture below its text": (Message(role="user", content=("Where is the box?", RED)),),
    "pictures of two sizes in one message": (
        Message(role="user", content=(RED, "then", BLUE, "Which?")),
    ),
    "a picture in each question": (
        Message(role="system", content="You push boxes."),
        Message(role="user", content=("Where?", RED)),
        Message(role="assistant", content=" left"),
        Message(role="user", content=("And now?", NO_TEXT)),
    ),
    "no picture": (Message(role="user", content="Where is the box?"),),
}


@pytest.mark.parametrize("messages", CHATS.values(), ids=list(CHATS))
def test_a_prompt_has_the_tokens_that_the_processor_gives_it(
    messages: tuple[Message, ...],
    renderer: ChatTemplateRenderer,
    reader: PictureReader,
    processor: Any,  # noqa: ANN401
) -> None:
    chat = [
        {
            "role": message.role,
            "content": [
                {"type": "text", "text": part}
                if isinstance(part, str)
                else {"type": "image", "image": reader.image(part)}
                for part in message.parts
            ],
        }
        for message in messages
    ]
    text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    expected = processor(text=[text], images=reader.images(messages) or None)["input_ids"][0]

    tokens = renderer.render(messages)

    assert list(tokens) == list(expected)
    reader.require_places(tokens, messages)


def test_a_larger_picture_takes_more_tokens_up_to_the_processor_s_limit(
    reader: PictureReader,
) -> None:
    assert reader.num_tokens(NO_TEXT) == 3 * 2  # enlarged to the least that the processor takes
    assert reader.num_tokens(RED) == 6 * 3
    assert 48 < reader.num_tokens(BLUE) <= 64


def test_a_conversation_goes_on_from_the_tokens_of_a_prompt_with_pictures(
    renderer: ChatTemplateRenderer, reader: PictureReader
) -> None:
    asked = (Message(role="user", content=("Where?", RED)),)
    prompt = renderer.render(asked)
    reply = (*renderer.tokenize(" left"), *renderer.tokenize(" up"), 2)
    call = Call(
        messages=asked,
        reply=renderer.decode(reply),
        sampled=SampledTokens(
            prompt_tokens=prompt,
            action_tokens=reply,
            behavior_logprobs=(-1.0,) * len(reply),
            policy_version=0,
        ),
    )
    messages = (
        *asked,
        Message(role="assistant", content=call.reply),
        Message(role="user", content=("And now?", BLUE)),
    )

    tokens = renderer.render(messages, earlier=(call,))

    assert tokens[: len(prompt) + len(reply)] == (*prompt, *reply)
    assert tokens == renderer.render(messages)
    reader.require_places(tokens, messages)


def test_a_text_that_names_the_placeholder_is_refused(
    renderer: ChatTemplateRenderer, reader: PictureReader
) -> None:
    named = Message(role="user", content=("Where is <|image_pad|>?", RED))

    with pytest.raises(ValueError, match="1 pictures and 2 placeholders"):
        renderer.render((named,))


def test_tokens_and_pictures_that_do_not_belong_together_are_refused(
    renderer: ChatTemplateRenderer, reader: PictureReader
) -> None:
    red = CHATS["one picture below its text"]
    other = (Message(role="user", content=("Where is the box?", BLUE)),)

    with pytest.raises(ValueError, match="18 tokens of pictures, and its pictures take"):
        reader.require_places(renderer.render(red), other)


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        (Picture.of(b"no picture"), "cannot be read"),
        (Picture(media_type="image/png", content_hash="0" * 64), "no bytes"),
        (Picture.of(png("red", width=900, height=4)), "aspect ratio"),
    ],
)
def test_a_picture_that_cannot_be_read_is_refused(
    picture: Picture, why: str, renderer: ChatTemplateRenderer
) -> None:
    with pytest.raises(ValueError, match=why):
        renderer.render((Message(role="user", content=("Where?", picture)),))


def test_a_picture_is_decoded_once_while_it_is_kept(reader: PictureReader) -> None:
    again = Picture.of(png("red", width=160, height=96))

    assert reader.image(again) is reader.image(RED)
    assert pictures_of(CHATS["a picture in each question"]) == (RED, NO_TEXT)


def test_a_model_of_text_has_no_reader(tmp_path: Path) -> None:
    assert load_picture_reader(prepare_model("tiny", tmp_path)) is None
