# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Prompts with pictures as tokens, against the model's own processor."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoProcessor, AutoTokenizer

from longhaul_core.audit.loader import PICTURE_TOKENS, num_picture_places
from longhaul_core.store.packing import pack_tokens
from longhaul_core.types import (
    Call,
    Message,
    Picture,
    SampledTokens,
    Tool,
    ToolCall,
    pictures_of,
)
from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from longhaul_trainer.models.vision import FAMILIES
from longhaul_trainer.rendering import pictures as rendered
from longhaul_trainer.rendering.pictures import (
    PictureReader,
    load_picture_reader,
    picture_reader,
)
from longhaul_trainer.rendering.pieces import token_pieces
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer, load_renderer
from pictures import png
from trainer.rendering.conversations import gone_on

RED = Picture.of(png("red", width=160, height=96))
BLUE = Picture.of(png("blue", width=500, height=310))
NO_TEXT = Picture.of(png("green", width=31, height=29))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made = tmp_path_factory.mktemp("model")
    write_tiny_vision_model(made, family=getattr(request, "param", "qwen2_5_vl"))
    return made


OF_FAMILIES = pytest.mark.parametrize("folder", FAMILIES, indirect=True)


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


@OF_FAMILIES
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
    assert renderer.render_chat(messages) == tokens
    reader.require_places(tokens, messages)


def test_tools_and_their_results_stand_around_pictures(
    renderer: ChatTemplateRenderer, reader: PictureReader
) -> None:
    """The template knows no tools: what a program sends becomes text of users and assistants."""
    look = ToolCall(id="1", name="look", arguments="{}")
    again = ToolCall(id="2", name="look", arguments="{}")
    messages = (
        Message(role="system", content=("Like this:", NO_TEXT)),
        Message(role="user", content="Look."),
        Message(role="assistant", content=("I saw", BLUE), tool_calls=(look, again)),
        Message(role="tool", content=("Here:", RED), tool_call_id="1"),
        Message(role="tool", content="Dark.", tool_call_id="2"),
    )
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    asked, said, seen = messages[1], f"\n{call}\n{call}", "<tool_response>\n"
    plain = (
        Message(role="system", content=("Like this:", NO_TEXT)),
        asked,
        Message(role="assistant", content=("I saw", BLUE, said)),
        Message(
            role="user",
            content=(f"{seen}Here:", RED, f"\n</tool_response>\n{seen}Dark.\n</tool_response>"),
        ),
    )

    tokens = renderer.render_chat(messages)

    assert tokens == renderer.render(plain)
    with_tools = renderer.render_chat(messages, tools=(Tool(name="look"),))
    assert with_tools[-100:] == tokens[-100:]
    reader.require_places(with_tools, messages)


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
    assert gone_on(renderer, call, messages[2:]) == tokens
    reader.require_places(tokens, messages)


@pytest.mark.parametrize(
    "parts",
    [
        ("Where is <|image_pad|>, or <|video_pad|>?", RED),
        (RED, "Where is <|image_", "pad|>, or <|vision_start|><|video_pad|>?"),
    ],
)
def test_a_text_that_names_a_placeholder_stays_a_text(
    renderer: ChatTemplateRenderer, reader: PictureReader, parts: tuple[str | Picture, ...]
) -> None:
    named = (Message(role="user", content=parts),)
    plain = (Message(role="user", content=("Where?", RED)),)

    tokens, known = renderer.render(named), renderer.render(plain)

    reader.require_places(tokens, named)
    start = known[[known.count(token) for token in known].index(reader.num_tokens(RED)) - 1]
    assert tokens.count(start) == known.count(start)
    assert "".join(part for part in parts if isinstance(part, str)) in renderer.decode(tokens)


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
        (Picture.of(png("red")[:60]), "cannot be read as one of PNG, JPEG, WEBP: "),
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


def test_a_reader_of_grey_pictures_shows_nothing_but_their_sizes(
    processor: Any,  # noqa: ANN401
    reader: PictureReader,
) -> None:
    grey = picture_reader(processor, grey=True)
    assert grey is not None

    for picture in (RED, BLUE):
        seen, hidden = reader.image(picture), grey.image(picture)
        assert hidden.size == seen.size
        assert hidden.getcolors() == [(seen.width * seen.height, (128, 128, 128))]
        assert grey.num_tokens(picture) == reader.num_tokens(picture)
    with pytest.raises(ValueError, match="cannot be read"):
        grey.image(Picture.of(b"no picture"))


@pytest.mark.parametrize(
    ("cut", "kept", "shown"),
    [(0, 0, (RED, BLUE)), (1, 1, (RED, BLUE)), (4, 8, (BLUE,)), (9, 9, (BLUE,)), (11, 13, ())],
    ids=["whole", "before the first", "in the first", "between them", "in the second"],
)
def test_the_end_of_a_prompt_has_whole_pictures_alone(
    processor: Any,  # noqa: ANN401
    reader: PictureReader,
    cut: int,
    kept: int,
    shown: tuple[Picture, ...],
) -> None:
    token = processor.image_token_id
    tokens = [5, 6, *[token] * 6, 7, 8, *[token] * 3, 9]

    assert reader.whole_at_the_end(tokens[cut:], (RED, BLUE)) == (tuple(tokens[kept:]), shown)


def test_no_more_pixels_are_kept_than_are_allowed(
    reader: PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = reader.image(BLUE)
    monkeypatch.setattr(rendered, "_decoded", rendered.DecodedPictures(20_000))

    red, no_text = reader.image(RED), reader.image(NO_TEXT)

    assert reader.image(RED) is red  # 15,360 and 899
    large = reader.image(BLUE)
    assert large is not kept
    assert reader.image(BLUE) is large  # alone, though it has 155,000
    assert reader.image(NO_TEXT) is not no_text


def test_a_picture_of_too_many_pixels_is_refused(
    reader: PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered, "MOST_PIXELS", 160 * 96)

    assert reader.num_tokens(RED) == 18
    with pytest.raises(ValueError, match=r"500 by 310 pixels, more than the 15,360"):
        reader.num_tokens(BLUE)


@OF_FAMILIES
def test_the_audit_counts_the_pictures_of_a_prompt_by_its_tokens(
    renderer: ChatTemplateRenderer, folder: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for messages in CHATS.values():
        tokens = renderer.render(messages)
        pieces = token_pieces(tokenizer, tokens)
        stands = [token for token, piece in pieces.items() if piece in PICTURE_TOKENS]

        assert len(stands) == bool(pictures_of(messages))
        assert num_picture_places(pack_tokens(tokens), stands) == len(pictures_of(messages))


def test_a_model_of_text_has_no_reader(tmp_path: Path) -> None:
    assert load_picture_reader(prepare_model("tiny", tmp_path)) is None
