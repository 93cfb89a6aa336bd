"""Tests for Mistral's own chat templates, as its package `mistral-common` writes them."""

import copy

import pytest
from mistral_common.integrations.chat_templates.chat_templates import generate_chat_template
from mistral_common.tokens.tokenizers.base import TokenizerVersion

from chat_templates import tokenizer_like
from longhaul_core.types import Message
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from trainer.rendering.conversations import (
    ASKED,
    MOVE,
    call_of,
    gone_on,
    sampled,
    tool_call,
    tool_result,
)


@pytest.mark.parametrize(
    ("version", "reply", "added"),
    [
        (
            TokenizerVersion.v3,
            '[TOOL_CALLS] [{"name": "move", "arguments": {"where": "north"}, "id": "a1b2c3d4e"}]',
            '[TOOL_RESULTS] {"content": "a wall", "call_id": "a1b2c3d4e"}[/TOOL_RESULTS]',
        ),
        (
            TokenizerVersion.v7,
            '[TOOL_CALLS][{"name": "move", "arguments": {"where": "north"}, "id": "a1b2c3d4e"}]',
            "[TOOL_RESULTS]a1b2c3d4e[TOOL_CONTENT]a wall[/TOOL_RESULTS]",
        ),
        (
            TokenizerVersion.v11,
            '[TOOL_CALLS]move[CALL_ID]a1b2c3d4e[ARGS]{"where": "north"}',
            "[TOOL_RESULTS]a1b2c3d4e[TOOL_CONTENT]a wall[/TOOL_RESULTS]",
        ),
        (
            TokenizerVersion.v13,
            '[TOOL_CALLS]move[ARGS]{"where": "north"}',
            "[TOOL_RESULTS]a wall[/TOOL_RESULTS]",
        ),
    ],
)
def test_calls_are_written_read_and_gone_on_from(
    version: TokenizerVersion, reply: str, added: str
) -> None:
    tokenizer = copy.deepcopy(tokenizer_like("mistral-v11"))
    tokenizer.bos_token = "<s>"
    tokenizer.chat_template = generate_chat_template(
        spm=version == TokenizerVersion.v3,
        tokenizer_version=version,
        image_support=False,
        audio_support=False,
        thinking_support=False,
        default_system_prompt=None,
        plain_thinking_support=False,
        use_special_token_variables=True,
        model_settings_fields=None,
        reasoning_effort_values=None,
        reasoning_effort_default=None,
    )
    renderer = ChatTemplateRenderer(tokenizer)
    called = Message(role="assistant", content="", tool_calls=(tool_call(id="a1b2c3d4e"),))
    result = tool_result("a wall", id="a1b2c3d4e")

    written = str(tokenizer.decode([*renderer.render_chat((*ASKED, called), tools=(MOVE,))]))
    reading = renderer.reader(tools=(MOVE,))
    reading.feed(sampled(tokenizer, f"{reply}</s>"))
    (read,) = reading.end()[1].tool_calls
    call = call_of(renderer, sampled(tokenizer, f"{reply}</s>"))
    longer = gone_on(renderer, call, (result,), tools=(MOVE,))

    assert written.endswith(f"{reply}</s>")
    assert (read.name, read.arguments) == ("move", '{"where": "north"}')
    assert call.sampled is not None
    assert longer is not None
    num_known = len(call.sampled.prompt_tokens) + len(call.sampled.action_tokens)
    assert tokenizer.decode(list(longer[num_known:])) == added
