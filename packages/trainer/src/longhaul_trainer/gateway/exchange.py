"""A request for replies and its answer, the same for every dialect.

    body ── Dialect.read ──▶ ChatRequest ── episode ──▶ ChatReply ── Dialect.whole ──▶ body
                                              └─ Delta, Delta, … ─── Stream ──▶ events

A dialect knows a vendor's JSON and nothing of episodes; the episode knows nothing of JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from longhaul_core.policy import ReplyPart
from longhaul_core.types import FinishReason, Message, Tool, ToolCall

__all__ = [
    "ApiError",
    "ChatReply",
    "ChatRequest",
    "Choice",
    "CreditReport",
    "Delta",
    "Dialect",
    "ErrorKind",
    "Stream",
    "Usage",
]

ErrorKind = Literal[
    "invalid_request",
    "authentication",
    "not_found",
    "too_large",
    "gone",
    "rate_limited",
    "prompt_too_long",
    "episode_limit",
    "unsupported",
    "overloaded",
    "upstream",
    "internal",
]

STATUS: Mapping[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "not_found": 404,
    "too_large": 413,
    "gone": 410,
    "rate_limited": 429,
    "prompt_too_long": 400,
    "episode_limit": 400,
    "unsupported": 400,
    "overloaded": 503,
    "upstream": 502,
    "internal": 500,
}
"""HTTP status of each kind of error. A limit of the episode is a 400, because vendors' clients
repeat a request that got 429."""


class ApiError(Exception):
    """A request that gets no reply; each dialect has its own words for it."""

    def __init__(self, kind: ErrorKind, message: str, *, parameter: str | None = None) -> None:
        """An error for the client.

        Args:
            kind: What went wrong; decides the HTTP status.
            message: For people: the value, the limit, what to do.
            parameter: Which field of the body, where one is at fault.
        """
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.parameter = parameter

    @property
    def status(self) -> int:
        """HTTP status."""
        return STATUS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditReport:
    """What a program says of its own step, by headers, by `extra_body` or by our client.

    As `extra_body` it is an object `longhaul` with these keys; as headers each is
    `Longhaul-Reward`, `Longhaul-Anchor-State`, `Longhaul-Done`, `Longhaul-Train`,
    `Longhaul-Agent`, `Longhaul-Purpose`.
    """

    reward: float | None = None
    """For the step before this call: what the last action brought."""
    anchor_state: str | None = None
    """State in which this call is made."""
    done: bool = False
    """Nothing comes after this: with our client, `longhaul.step(done=True)`."""
    train: bool = True
    """False for a call that is not the agent's own, such as a judge's."""
    agent: str = ""
    """Name of the agent, in a program of several."""
    purpose: str = "act"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for."""

    model: str
    messages: tuple[Message, ...]
    """Empty where `raw_prompt` is the prompt."""
    raw_prompt: str | tuple[int, ...] | None = None
    """Of the completions dialect: text or tokens that no chat template goes round."""
    tools: tuple[Tool, ...] = ()
    loaded_tools: tuple[Tool, ...] = ()
    """That messages tell of: the reply may ask for them too."""
    num_choices: int = 1
    max_tokens: int | None = None
    """None: as long as the run allows."""
    temperature: float | None = None
    """None: the client names none; so for `top_p`."""
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    altered: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the client asks for beyond that, by vLLM's names, which would change the distribution
    that is sampled: penalties, `logit_bias`, `top_k`, `min_p`, `structured_outputs` (of a response
    format, a tool that must be called). Neutral values are left out."""
    left_out: tuple[str, ...] = ()
    """What it asks for and nobody serves: fields that are unknown, and tools of a vendor's own."""
    stream: bool = False
    streams_usage: bool = False
    """Whether a stream ends with the numbers of tokens, where that is asked for."""
    returns_logprobs: bool = False
    """Whether the answer carries the log-probability of each sampled token."""
    names_tokens_by_id: bool = False
    """Whether a token's text is `token_id:5` there, as vLLM's servers write it when asked."""
    returns_token_ids: bool = False
    """Whether the answer carries the token ids of prompt and reply, as vLLM's does."""
    shows_thoughts: bool = False
    """Whether the answer has thoughts, where a vendor's clients have to ask for them. A client that
    did not ask may read the answer's first part as text."""
    idempotency_key: str | None = None
    """Equal for a request and its repetition."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """As they were sent, by names in lower case."""
    credit: CreditReport = CreditReport()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of one choice while it is written."""

    choice: int
    """0-based."""
    part: ReplyPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Numbers of tokens."""

    prompt_tokens: int
    reply_tokens: int
    """Of all choices."""
    cached_tokens: int = 0
    """Leading prompt tokens that the engine did not compute again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    stop_word: str | None = None
    """The one of `ChatRequest.stop` that ended it."""
    tokens: tuple[int, ...] = ()
    """Of our own models, for clients that ask for them or for their logprobs."""
    logprobs: tuple[float, ...] = ()
    """As many as `tokens`."""
    token_bytes: tuple[bytes, ...] = ()
    """What each token stands for, where the client asks for logprobs: a part of a text in UTF-8,
    which may end within a character, or the name of a special token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What a client gets."""

    id: str
    """Unguessable; the same for a repeated request."""
    created: int
    """Unix time in seconds."""
    model: str
    """As the client named it."""
    choices: Sequence[Choice]
    usage: Usage
    prompt_tokens: tuple[int, ...] = ()
    """Where the client asks for token ids (`return_token_ids`); else empty, since replies are kept
    for retries."""


class Stream(Protocol):
    """Writes one answer as server-sent events, in the order that a vendor's clients expect."""

    def begin(self, *, id: str, created: int) -> bytes:
        """Events before the first token; may be empty."""
        ...

    def delta(self, delta: Delta) -> bytes:
        """Events of a piece; may be empty."""
        ...

    def keep_alive(self) -> bytes:
        """An event or comment that says nothing, while the engine is busy."""
        ...

    def end(self, reply: ChatReply) -> bytes:
        """Events after the last piece, the end mark included."""
        ...

    def error(self, error: ApiError) -> bytes:
        """Events in place of the rest."""
        ...


class Dialect(Protocol):
    """One vendor's JSON for one kind of request."""

    def read(self, body: Mapping[str, object], *, path: Mapping[str, str]) -> ChatRequest:
        """What a body asks for.

        Args:
            body: Parsed JSON.
            path: Parts of the address that the vendor puts there, such as Google's `model`.

        Raises:
            ApiError: `invalid_request` or `unsupported`; names the field, its value and what is
                understood.
        """
        ...

    def whole(self, reply: ChatReply, request: ChatRequest) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        ...

    def stream(self, request: ChatRequest) -> Stream:
        """Writes an answer as events."""
        ...

    def error(self, error: ApiError) -> dict[str, object]:
        """The body of an error."""
        ...
