"""How a reply is to be drawn, as OpenAI's and vLLM's servers are asked for it."""

from collections.abc import Callable, Mapping
from typing import TypedDict, cast

from longhaul_trainer.gateway.dialects.fields import Fields, refusal
from longhaul_trainer.gateway.exchange import ApiError

__all__ = [
    "LARGEST",
    "MAX_CHOICES",
    "SAMPLED_ALONE",
    "Settings",
    "openai_settings",
    "schema_constraint",
    "stop_words",
]

LARGEST = 2**31 - 1
"""Of numbers of tokens, seeds and ids."""
MAX_CHOICES = 128
SAMPLED_ALONE = (
    "the sampled tokens alone: verl's server of an engine returns no alternatives to them"
)
"""Of which tokens there are logprobs."""
_MAX_STOP_WORDS = 64

_ALTERING: Mapping[str, tuple[Callable[[Fields, str], object], tuple[object, ...]]] = {
    "frequency_penalty": (lambda f, name: f.number(name, at_least=-2, at_most=2), (0,)),
    "presence_penalty": (lambda f, name: f.number(name, at_least=-2, at_most=2), (0,)),
    "repetition_penalty": (lambda f, name: f.number(name, at_least=1e-3, at_most=1e3), (1,)),
    "top_k": (lambda f, name: f.integer(name, at_least=-1, at_most=LARGEST), (-1, 0)),
    "min_p": (lambda f, name: f.number(name, at_least=0, at_most=1), (0,)),
    "min_tokens": (lambda f, name: f.integer(name, at_least=0, at_most=LARGEST), (0,)),
    "ignore_eos": (lambda f, name: f.flag(name), (False,)),
    "stop_token_ids": (lambda f, name: _token_ids(f, name), ([],)),
    "allowed_token_ids": (lambda f, name: _token_ids(f, name), ([],)),
    "bad_words": (lambda f, name: f.each(name, str, "a string"), ([],)),
    "logit_bias": (lambda f, name: _logit_bias(f, name), ({},)),
}
"""Reader and neutral values of what changes the distribution, by vLLM's names."""
_GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class Settings(TypedDict):
    """The part of `ChatRequest` that says how to draw."""

    temperature: float | None
    top_p: float | None
    stop: tuple[str, ...]
    num_choices: int
    altered: Mapping[str, object]
    stream: bool
    streams_usage: bool


def openai_settings(body: Fields, *, constraint: Mapping[str, object] | None = None) -> Settings:
    """What a body of OpenAI's says of sampling, vLLM's further fields included.

    Args:
        body: The request.
        constraint: What its response format asks for, by the names of vLLM's `structured_outputs`.

    Raises:
        ApiError: A value is out of range.
    """
    altered: dict[str, object] = {}
    for name, (read, neutral) in _ALTERING.items():
        value = read(body, name)
        if value is not None and value not in neutral:
            altered[name] = value
    constraint = _constraint(body, constraint)
    if constraint:
        altered["structured_outputs"] = constraint
    body.integer("seed", at_least=-(2**63), at_most=2**63 - 1)  # the session's own seed is in force
    options = body.inner("stream_options") or Fields({})
    return Settings(
        temperature=body.number("temperature", at_least=0, at_most=2),
        top_p=body.number("top_p", at_least=1e-6, at_most=1),
        stop=stop_words(body, "stop"),
        num_choices=body.integer("n", at_least=1, at_most=MAX_CHOICES) or 1,
        altered=altered,
        stream=body.flag("stream") or False,
        streams_usage=options.flag("include_usage") or False,
    )


def stop_words(body: Fields, name: str) -> tuple[str, ...]:
    """A stop word, or a list of them.

    Raises:
        ApiError: One is empty, or there are more than 64.
    """
    value = body.get(name)
    words = [value] if isinstance(value, str) else body.each(name, str, "a string")
    if len(words) > _MAX_STOP_WORDS:
        raise refusal(body.place(name), words, f"at most {_MAX_STOP_WORDS} words")
    for word in words:
        if not word:
            raise refusal(body.place(name), word, "words that are not empty")
    return tuple(words)


def schema_constraint(schema: object, *, place: str) -> Mapping[str, object]:
    """The constraint that a reply is JSON of a schema."""
    return {"json": dict(Fields.of(schema, place=place).values)}


def _constraint(body: Fields, constraint: Mapping[str, object] | None) -> dict[str, object]:
    """The one constraint on the form of a reply."""
    found = dict(constraint or {})
    for name in _GUIDED:
        if body.get(name) is not None:
            found[name.removeprefix("guided_")] = body.get(name)
    asked = body.inner("structured_outputs")
    if asked is not None:
        asked.known(_CONSTRAINTS)
        found |= {name: value for name, value in asked.values.items() if value is not None}
    if len(found) > 1:
        raise ApiError(
            "invalid_request",
            f"the body asks for {' and '.join(sorted(found))} at once; understood is one "
            "constraint on the form of a reply",
            parameter="structured_outputs",
        )
    return found


def _token_ids(body: Fields, name: str) -> list[int]:
    ids = body.each(name, int, "a token id")
    for place, token in enumerate(ids):
        if not 0 <= token <= LARGEST:
            raise refusal(f"{body.place(name)}[{place}]", token, "a token id")
    return ids


def _logit_bias(body: Fields, name: str) -> dict[str, float]:
    biases = body.inner(name)
    found: dict[str, float] = {}
    for token in () if biases is None else biases.values:
        if not (token.isascii() and token.isdigit() and len(token) < 11):
            raise refusal(body.place(name), token, "token ids as keys")
        bias = cast("Fields", biases).number(token, at_least=-100, at_most=100)
        if bias:
            found[token] = bias
    return found
