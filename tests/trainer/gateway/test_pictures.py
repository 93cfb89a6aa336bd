"""Programs that send pictures to a model that reads them, over HTTP and with a vendor's client."""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping

import httpx
import openai
import pytest

from gateways import Played, Stage, responder_of
from longhaul_core.policy import Completion, Prompt
from longhaul_core.rollout import Responder
from longhaul_core.types import (
    Call,
    Continuation,
    Message,
    Picture,
    Sampling,
    Trajectory,
    pictures_of,
)
from longhaul_trainer.models import prepare_model
from longhaul_trainer.models.folder import MESSAGE_END_ID
from longhaul_trainer.rendering.pictures import MOST_PIXELS
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer, load_renderer
from longhaul_trainer.training.merging import cut_into_rows
from pictures import png

RED, GREEN = (png(colour, width=160, height=96) for colour in ("red", "green"))
BLUE = png("blue", width=64, height=64)


def of_size(width: int, height: int) -> bytes:
    """A picture that claims to be so large; its rows are not there."""
    header = b"IHDR" + struct.pack(">II", width, height) + RED[24:29]
    return RED[:12] + header + struct.pack(">I", zlib.crc32(header)) + RED[33:]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplateRenderer:
    return load_renderer(prepare_model("tiny-vision", tmp_path_factory.mktemp("models")))


class ShownPolicy:
    """Answers `left` to whatever it is shown, if the tokens have places for the pictures."""

    def __init__(self, renderer: ChatTemplateRenderer) -> None:
        self._renderer = renderer
        self.prompts: list[Prompt] = []

    async def act(self, prompt: Prompt, sampling: Sampling, *, episode_id: str) -> Completion:
        self._renderer.require_places(prompt.tokens, prompt.messages)
        self.prompts.append(prompt)
        # Not as the tokenizer would write it: what was sampled is kept as it was.
        letters = [token for letter in "left" for token in self._renderer.tokenize(letter)]
        tokens = (*letters, MESSAGE_END_ID)
        return Completion(
            text="left",
            action_tokens=tokens,
            behavior_logprobs=(-0.5,) * len(tokens),
            policy_version=0,
        )

    @property
    def responder(self) -> Responder:
        return Responder(policy=self, renderer=self._renderer, max_reply_tokens=64)


@pytest.fixture
def policy(renderer: ChatTemplateRenderer) -> ShownPolicy:
    return ShownPolicy(renderer)


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url_of(data: bytes) -> str:
    return f"data:image/png;base64,{text_of(data)}"


def shown(data: bytes, *, text: str = "Where?") -> dict[str, object]:
    """A user's message of a chat completion."""
    image = {"type": "image_url", "image_url": {"url": url_of(data)}}
    return {"role": "user", "content": [{"type": "text", "text": text}, image]}


LEFT: dict[str, object] = {"role": "assistant", "content": "left"}


async def ask(one: Played, *messages: Mapping[str, object]) -> httpx.Response:
    body = {"model": "auto", "messages": messages}
    return await one.http.post("/v1/chat/completions", json=body)


def chat(data: bytes) -> tuple[str, dict[str, object]]:
    return "/v1/chat/completions", {"model": "auto", "messages": [shown(data)]}


def responses(data: bytes) -> tuple[str, dict[str, object]]:
    content = [
        {"type": "input_text", "text": "Where?"},
        {"type": "input_image", "detail": "auto", "image_url": url_of(data)},
    ]
    return "/v1/responses", {"model": "auto", "input": [{"role": "user", "content": content}]}


def anthropic_messages(data: bytes) -> tuple[str, dict[str, object]]:
    source = {"type": "base64", "media_type": "image/png", "data": text_of(data)}
    content = [{"type": "text", "text": "Where?"}, {"type": "image", "source": source}]
    messages = [{"role": "user", "content": content}]
    return "/v1/messages", {"model": "auto", "max_tokens": 32, "messages": messages}


def google_generate(data: bytes) -> tuple[str, dict[str, object]]:
    inline = {"mimeType": "image/png", "data": text_of(data)}
    contents = [{"role": "user", "parts": [{"text": "Where?"}, {"inlineData": inline}]}]
    return "/v1beta/models/auto:generateContent", {"contents": contents}


DIALECTS = (chat, responses, anthropic_messages, google_generate)
Dialect = Callable[[bytes], tuple[str, dict[str, object]]]

every_dialect = pytest.mark.parametrize(
    "dialect", DIALECTS, ids=[dialect.__name__ for dialect in DIALECTS]
)


def prompt_tokens_of(answer: dict[str, dict[str, int]]) -> int:
    """As a vendor reports them."""
    usage = answer.get("usage") or answer["usageMetadata"]
    names = ("prompt_tokens", "input_tokens", "promptTokenCount")
    return next(usage[name] for name in names if name in usage)


@every_dialect
def test_a_prompt_has_the_tokens_that_an_environment_s_would_have(
    dialect: Dialect, stage: Stage, policy: ShownPolicy, renderer: ChatTemplateRenderer
) -> None:
    async def program(one: Played) -> None:
        address, body = dialect(RED)
        answer = await one.http.post(address, json=body)

        assert answer.status_code == 200, answer.text
        (prompt,) = policy.prompts
        asked = (Message(role="user", content=("Where?", Picture.of(RED))),)
        assert prompt.messages == asked
        assert prompt.tokens == renderer.render(asked)
        assert prompt_tokens_of(answer.json()) == len(prompt.tokens)

    stage.played(program, models={"policy": policy.responder})


@every_dialect
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (RED[:60], "cannot be read as one of PNG, JPEG, WEBP"),
        (
            of_size(MOST_PIXELS // 4000 + 1, 4000),
            f"more than the {MOST_PIXELS:,} that one may have",
        ),
        (png("red", width=900, height=4), "aspect ratio must be smaller than 200"),
        (b"GIF89a", "PNG, JPEG or WebP"),
    ],
    ids=["cut off", "too large", "too long", "another format"],
)
def test_a_picture_that_cannot_be_read_is_the_request_s_fault(
    data: bytes, why: str, dialect: Dialect, stage: Stage, policy: ShownPolicy
) -> None:
    async def program(one: Played) -> None:
        address, body = dialect(data)
        refused = await one.http.post(address, json=body)
        answered = await ask(one, shown(RED))

        assert refused.status_code == 400, refused.text
        assert why in refused.text
        assert answered.status_code == 200
        assert one.episode.failure is None
        assert len(policy.prompts) == 1

    stage.played(program, models={"policy": policy.responder})


@every_dialect
def test_a_model_of_text_refuses_them(dialect: Dialect, stage: Stage) -> None:
    async def program(one: Played) -> None:
        address, body = dialect(RED)
        refused = await one.http.post(address, json=body)

        assert refused.status_code == 400
        assert "pictures (1), and model 'policy' reads text alone" in refused.text

    stage.played(program, models={"policy": responder_of()})


ADDRESS = "https://a.b/c.png"
AT_AN_ADDRESS: dict[str, tuple[str, str, dict[str, object]]] = {
    "chat": (
        "/v1/chat/completions",
        "messages",
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": ADDRESS}}]},
    ),
    "responses": (
        "/v1/responses",
        "input",
        {"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]},
    ),
    "anthropic_messages": (
        "/v1/messages",
        "messages",
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "url", "url": ADDRESS}}],
        },
    ),
    "google_generate": (
        "/v1beta/models/auto:generateContent",
        "contents",
        {"role": "user", "parts": [{"fileData": {"fileUri": ADDRESS}}]},
    ),
}


@pytest.mark.parametrize(
    ("address", "field", "message"), AT_AN_ADDRESS.values(), ids=list(AT_AN_ADDRESS)
)
def test_a_picture_at_an_address_is_refused(
    address: str, field: str, message: dict[str, object], stage: Stage, policy: ShownPolicy
) -> None:
    async def program(one: Played) -> None:
        limit = {"max_tokens": 32} if address == "/v1/messages" else {}
        refused = await one.http.post(address, json={"model": "auto", **limit, field: [message]})

        assert refused.status_code == 400, refused.text
        assert "the gateway fetches nothing" in refused.text

    stage.played(program, models={"policy": policy.responder})


def test_a_prompt_goes_on_from_the_tokens_of_the_call_before(
    stage: Stage, policy: ShownPolicy, renderer: ChatTemplateRenderer
) -> None:
    async def program(one: Played) -> None:
        await ask(one, shown(RED))
        await ask(one, shown(RED), LEFT, shown(BLUE, text="And now?"))
        first, second = calls_of(one.end())
        assert first.sampled is not None
        assert second.sampled is not None
        known = (*first.sampled.prompt_tokens, *first.sampled.action_tokens)
        whole = renderer.render_chat(second.messages)

        assert second.continuation is Continuation.EXACT
        assert second.sampled.prompt_tokens[: len(known)] == known
        assert pictures_of(second.messages) == (Picture.of(RED), Picture.of(BLUE))
        # What follows the reply is what a prompt made from nothing has there.
        added = second.sampled.prompt_tokens[len(known) :]
        assert whole[len(whole) - len(added) :] == added
        assert second.sampled.prompt_tokens != whole
        [row] = cut_into_rows(one.end().steps, form="merged")
        assert row.pictures == (Picture.of(RED), Picture.of(BLUE))

    stage.played(program, models={"policy": policy.responder})


def test_a_conversation_with_another_picture_of_the_same_size_is_another_one(
    stage: Stage, policy: ShownPolicy
) -> None:
    """Its tokens are the same: they alone would let it go on from the first call."""

    async def program(one: Played) -> None:
        await ask(one, shown(RED))
        await ask(one, shown(GREEN), LEFT, shown(BLUE))
        await ask(one, shown(RED), LEFT, shown(BLUE))
        first, other, again = calls_of(one.end())

        assert first.sampled is not None
        assert other.sampled is not None
        prompt = first.sampled.prompt_tokens
        assert other.sampled.prompt_tokens[: len(prompt)] == prompt
        assert (first.conversation, other.conversation, again.conversation) == (0, 1, 0)
        assert other.continuation is Continuation.START
        rows = cut_into_rows(one.end().steps, form="merged")
        assert [row.pictures for row in rows] == [
            (Picture.of(RED), Picture.of(BLUE)),
            (Picture.of(GREEN), Picture.of(BLUE)),
        ]

    stage.played(program, models={"policy": policy.responder})


def test_what_a_step_shows_is_what_is_new(stage: Stage, policy: ShownPolicy) -> None:
    async def program(one: Played) -> None:
        await ask(one, shown(RED))
        await ask(one, shown(RED), LEFT, shown(BLUE, text="And now?"))

        observed = [step.observation for step in one.end().steps]
        assert [seen.pictures for seen in observed] == [(Picture.of(RED),), (Picture.of(BLUE),)]

    stage.played(program, models={"policy": policy.responder})


def test_a_tool_s_result_may_be_a_picture(
    stage: Stage, policy: ShownPolicy, renderer: ChatTemplateRenderer
) -> None:
    """The template knows no tools, so that a result is a user's text."""
    nothing: dict[str, object] = {}
    asked: dict[str, object] = {
        "type": "tool_use",
        "id": "look_1",
        "name": "look",
        "input": nothing,
    }
    source = {"type": "base64", "media_type": "image/png", "data": text_of(BLUE)}
    seen = [{"type": "text", "text": "You see"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "look_1", "content": seen}
    body: dict[str, object] = {
        "model": "auto",
        "max_tokens": 32,
        "tools": [{"name": "look", "input_schema": {"type": "object", "properties": nothing}}],
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [asked]},
            {"role": "user", "content": [result]},
        ],
    }

    async def program(one: Played) -> None:
        answer = await one.http.post("/v1/messages", json=body)

        assert answer.status_code == 200, answer.text
        (prompt,) = policy.prompts
        assert pictures_of(prompt.messages) == (Picture.of(BLUE),)
        last = Message(
            role="user",
            content=("<tool_response>\nYou see", Picture.of(BLUE), "\n</tool_response>"),
        )
        written = renderer.render((last,))
        assert prompt.tokens[len(prompt.tokens) - len(written) :] == written

    stage.played(program, models={"policy": policy.responder})


@pytest.mark.parametrize("name", ["<|image_pad|>", "<|video_pad|>"])
def test_a_message_that_names_a_placeholder_is_text_and_a_prompt_with_one_is_refused(
    name: str, stage: Stage, policy: ShownPolicy, renderer: ChatTemplateRenderer
) -> None:
    """An engine, or a learner, that read one would look for a picture that is not there."""

    async def program(one: Played) -> None:
        for prompt in (f"What is {name}?", list(renderer.tokenize(name))):
            body = {"model": "auto", "prompt": prompt}
            plain = await one.http.post("/v1/completions", json=body)
            assert plain.status_code == 400, plain.text
        assert policy.prompts == []

        chat = await ask(one, {"role": "user", "content": f"What is {name}?"})
        (token,) = renderer.tokenize(name)
        assert chat.status_code == 200, chat.text
        assert token not in policy.prompts[0].tokens

    stage.played(program, models={"policy": policy.responder})


def test_counted_tokens_are_those_of_the_pictures_too(stage: Stage, policy: ShownPolicy) -> None:
    async def program(one: Played) -> None:
        _, body = anthropic_messages(RED)
        answer = await one.http.post("/v1/messages", json=body)
        counted = await one.http.post("/v1/messages/count_tokens", json=body)

        assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]

    async def of_text(one: Played) -> None:
        refused = await one.http.post("/v1/messages/count_tokens", json=anthropic_messages(RED)[1])

        assert refused.status_code == 400
        assert "reads text alone" in refused.text

    stage.played(program, models={"policy": policy.responder})
    stage.played(of_text, models={"policy": responder_of()})


def test_openai_s_client_shows_pictures_turn_by_turn(stage: Stage, policy: ShownPolicy) -> None:
    async def program(one: Played) -> None:
        environ = one.episode.environ()
        messages: list[object] = []
        async with openai.AsyncOpenAI(
            base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"], max_retries=0
        ) as client:
            for data in (RED, BLUE):
                messages.append(shown(data))
                completion = await client.chat.completions.create(
                    model="auto",
                    messages=messages,  # pyright: ignore[reportArgumentType]
                )
                messages.append(completion.choices[0].message)
                assert completion.choices[0].message.content == "left"

        assert [pictures_of(prompt.messages) for prompt in policy.prompts] == [
            (Picture.of(RED),),
            (Picture.of(RED), Picture.of(BLUE)),
        ]
        [row] = cut_into_rows(one.end().steps, form="merged")
        assert len(row.calls) == 2

    stage.played(program, models={"policy": policy.responder})


def calls_of(record: Trajectory) -> list[Call]:
    return [call for step in record.steps for call in step.calls]
