"""OpenAI's completions: a prompt as text or tokens, with no chat template round it."""

from collections.abc import Mapping

from longhaul_trainer.gateway.dialects.events import COMMENT, event
from longhaul_trainer.gateway.dialects.fields import Fields, refusal
from longhaul_trainer.gateway.dialects.logprobs import text_offsets, token_names
from longhaul_trainer.gateway.dialects.openai_chat import finish_word, usage_object
from longhaul_trainer.gateway.dialects.openai_errors import openai_error
from longhaul_trainer.gateway.dialects.sampling import (
    LARGEST,
    SAMPLED_ALONE,
    openai_settings,
)
from longhaul_trainer.gateway.exchange import ApiError, ChatReply, ChatRequest, Choice, Delta

__all__ = ["OpenAICompletions"]

_DEFAULT_MAX_TOKENS = 16
"""OpenAI's own, and vLLM's."""
_IGNORED = ("longhaul", "user")
"""Read elsewhere, or of no consequence for what is sampled."""
_REFUSED = {
    "echo": "join prompt and reply yourself",
    "suffix": "no model here fills gaps",
}


class OpenAICompletions:
    """`POST /v1/completions`."""

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for; see `Dialect`."""
        fields = Fields(body)
        fields.refuse(_REFUSED)
        settings = openai_settings(fields)
        best_of = fields.integer("best_of", at_least=1, at_most=LARGEST)
        if best_of not in (None, settings["num_choices"]):
            raise refusal("best_of", best_of, f"n, {settings['num_choices']}", kind="unsupported")
        logprobs = fields.integer("logprobs", at_least=0, at_most=20)
        if logprobs is not None and logprobs > 1:
            raise refusal("logprobs", logprobs, f"0 or 1, {SAMPLED_ALONE}", kind="unsupported")
        return ChatRequest(
            model=fields.needed_text("model"),
            messages=(),
            raw_prompt=_prompt(fields),
            max_tokens=fields.integer("max_tokens", at_least=1, at_most=LARGEST)
            or _DEFAULT_MAX_TOKENS,
            returns_logprobs=logprobs is not None,
            names_tokens_by_id=fields.flag("return_tokens_as_token_ids") or False,
            returns_token_ids=fields.flag("return_token_ids") or False,
            left_out=(*fields.unread(_IGNORED), *fields.left_out),
            **settings,
        )

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        return {
            **_head(reply.id, reply.created, request),
            "choices": [
                _choice(place, choice, request, reply) for place, choice in enumerate(reply.choices)
            ],
            "usage": usage_object(reply.usage),
        }

    def stream(self, request: ChatRequest) -> "_CompletionStream":
        """Writes an answer as chunks."""
        return _CompletionStream(request)

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        return {"error": openai_error(error)}


class _CompletionStream:
    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._head: dict[str, object] = {}

    def begin(self, *, id: str, created: int) -> bytes:
        self._head = _head(id, created, self._request)
        return b""

    def delta(self, delta: Delta) -> bytes:
        if not delta.part.text:
            return b""
        written = {"index": delta.choice, "text": delta.part.text}
        return event(
            {**self._head, "choices": [{**written, "logprobs": None, "finish_reason": None}]}
        )

    def keep_alive(self) -> bytes:
        return COMMENT

    def end(self, reply: ChatReply) -> bytes:
        written = b""
        for place, choice in enumerate(reply.choices):
            last = {**_choice(place, choice, self._request, reply), "text": ""}
            written += event({**self._head, "choices": [last]})
        if self._request.streams_usage:
            written += event({**self._head, "choices": [], "usage": usage_object(reply.usage)})
        return written + b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        return event({"error": openai_error(error)})


def _prompt(body: Fields) -> str | tuple[int, ...]:
    """One prompt; a list that holds a single one counts as it."""
    items = [] if isinstance(body.get("prompt"), str) else body.items("prompt")
    if items and not isinstance(items[0], int):
        if len(items) > 1:
            raise refusal("prompt", items, "one prompt a request", kind="unsupported")
        body = Fields({"prompt": items[0]})
    prompt = body.get("prompt")
    if isinstance(prompt, str) and prompt:
        return prompt
    tokens = [] if isinstance(prompt, str) else body.each("prompt", int, "a token id")
    for place, token in enumerate(tokens):
        if not 0 <= token <= LARGEST:
            raise refusal(f"prompt[{place}]", token, "a token id")
    if not tokens:
        raise refusal("prompt", body.get("prompt"), "text or a list of token ids, not empty")
    return tuple(tokens)


def _head(id: str, created: int, request: ChatRequest) -> dict[str, object]:
    return {
        "id": f"cmpl-{id}",
        "object": "text_completion",
        "created": created,
        "model": request.model,
    }


def _choice(
    place: int, choice: Choice, request: ChatRequest, reply: ChatReply
) -> dict[str, object]:
    written: dict[str, object] = {
        "index": place,
        "text": choice.text,
        "finish_reason": finish_word(choice),
        "logprobs": None,
    }
    if request.returns_logprobs:
        written["logprobs"] = {
            "tokens": token_names(choice, request),
            "token_logprobs": choice.logprobs,
            "top_logprobs": None,
            "text_offset": text_offsets(choice),
        }
    if request.returns_token_ids:
        written |= {"token_ids": choice.tokens, "prompt_token_ids": reply.prompt_tokens}
    return written
