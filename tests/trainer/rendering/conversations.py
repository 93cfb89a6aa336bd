"""Calls of programs, for tests of renderers."""

import re
from collections.abc import Sequence
from functools import cache

from transformers import PreTrainedTokenizerFast

from chat_templates import tokenizer_like
from longhaul_core.types import Call, Message, SampledTokens, Tool, ToolCall
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

MOVE = Tool(
    name="move",
    description="Go somewhere.",
    parameters='{"type": "object", "properties": {"where": {"type": "string"}, '
    '"steps": {"type": "integer"}}, "required": ["where"]}',
)
ASKED = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Go north – then wait."),
)


def tool_result(content: str, id: str = "call_1") -> Message:
    """A tool's message."""
    return Message(role="tool", content=content, tool_call_id=id)


def tool_call(arguments: str = '{"where": "north"}', *, id: str = "call_1") -> ToolCall:
    """A call of `MOVE`."""
    return ToolCall(id=id, name="move", arguments=arguments)


def sampled(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[int, ...]:
    """Tokens as a model may write them: one a character, but for added tokens."""
    names = _added(tokenizer)
    pieces = re.split(f"({'|'.join(map(re.escape, names))})", text)
    return tuple(
        token
        for piece in pieces
        for part in ([piece] if piece in names else piece)
        for token in _tokens(tokenizer, part)
    )


@cache
def _added(tokenizer: PreTrainedTokenizerFast) -> tuple[str, ...]:
    names = {piece.content for piece in tokenizer.added_tokens_decoder.values()}
    return tuple(sorted(names, key=len, reverse=True))


@cache
def _tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@cache
def renderer_like(family: str) -> ChatTemplateRenderer:
    """A renderer of `tokenizer_like(family)`."""
    return ChatTemplateRenderer(tokenizer_like(family))


def call_of(
    renderer: ChatTemplateRenderer,
    reply: Sequence[int],
    *,
    messages: Sequence[Message] = ASKED,
    tools: Sequence[Tool] = (MOVE,),
    prompt: Sequence[int] | None = None,
) -> Call:
    """A call whose reply was sampled so."""
    return Call(
        messages=tuple(messages),
        reply=renderer.decode(reply),
        sampled=SampledTokens(
            prompt_tokens=tuple(
                renderer.render_chat(messages, tools=tools) if prompt is None else prompt
            ),
            action_tokens=tuple(reply),
            behavior_logprobs=(-1.0,) * len(reply),
            policy_version=0,
        ),
        tools=tuple(tools),
    )


def gone_on(
    renderer: ChatTemplateRenderer,
    call: Call,
    messages: Sequence[Message],
    *,
    tools: Sequence[Tool] = (),
) -> tuple[int, ...] | None:
    """The prompt that goes on from a call; None where it cannot."""
    added = renderer.added(call, messages, tools=tools)
    if added is None:
        return None
    assert call.sampled is not None
    return (*call.sampled.prompt_tokens, *call.sampled.action_tokens, *added)
