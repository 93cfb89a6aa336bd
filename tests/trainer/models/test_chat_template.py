"""Tests for `longhaul_trainer.models.chat_template`, and for what the built-in one writes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from chat_templates import tokenizer_like
from longhaul_core.errors import ConfigError
from longhaul_core.types import Message
from longhaul_trainer.models.chat_template import BUILT_IN_CHAT_TEMPLATES, chat_template_text
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from trainer.rendering.conversations import ASKED, MOVE, call_of, gone_on, sampled, tool_result

NEXT = Message(role="user", content="And now?")
THOUGHTS = chat_template_text("chatml-thoughts", Path())


def text_of(tokens: Sequence[int] | None) -> str:
    assert tokens is not None
    return str(tokenizer_like("qwen3").decode(list(tokens)))  # pyright: ignore[reportUnknownMemberType]


def renderer(**variables: object) -> ChatTemplateRenderer:
    return ChatTemplateRenderer(tokenizer_like("qwen3"), template=THOUGHTS, variables=variables)


def test_a_template_is_a_file_a_name_or_the_text_itself(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages }}", encoding="utf-8")

    assert chat_template_text("own.jinja", tmp_path) == "{{ messages }}"
    assert chat_template_text(str(tmp_path / "own.jinja"), Path("elsewhere")) == "{{ messages }}"
    assert chat_template_text("{{ messages }}", tmp_path) == "{{ messages }}"
    assert chat_template_text("chatml-thoughts", tmp_path) == BUILT_IN_CHAT_TEMPLATES[
        "chatml-thoughts"
    ].read_text(encoding="utf-8")
    assert chat_template_text(None, tmp_path) is None


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("none.jinja", None, "No such file"),
        ("plain.jinja", b"Hello.", "holds no Jinja"),
        ("latin.jinja", "{{ ü }}".encode("latin-1"), "utf-8"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place_and_the_remedy(
    tmp_path: Path, name: str, content: bytes | None, found: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(ConfigError, match=f"(?s){name}.*{tmp_path}.*{found}.*chatml-thoughts"):
        chat_template_text(name, tmp_path)


def test_a_variable_of_the_template_changes_how_a_reply_begins() -> None:
    thinks, answers = renderer(), renderer(enable_thinking=False)

    assert text_of(thinks.render(ASKED)).endswith("<|im_start|>assistant\n")
    assert text_of(answers.render(ASKED)).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert answers.begun_thought == ""


@pytest.mark.parametrize(
    ("variables", "reply"),
    [
        ({}, "<think>\nHm.\n</think>\n\nI wait.<|im_end|>"),
        ({}, "I wait.<|im_end|>"),
        ({"enable_thinking": False}, "I wait.<|im_end|>"),
    ],
)
def test_a_prompt_goes_on_from_a_reply_and_its_thought_where_qwen3s_own_begins_anew(
    variables: dict[str, object], reply: str
) -> None:
    mine = renderer(**variables)
    call = call_of(mine, sampled(tokenizer_like("qwen3"), reply), tools=())
    assert call.sampled is not None

    tokens = gone_on(mine, call, (NEXT,))

    assert tokens is not None
    known = (*call.sampled.prompt_tokens, *call.sampled.action_tokens)
    assert tokens[: len(known)] == known
    anew = mine.render_chat((*ASKED, call_message(mine, call.sampled.action_tokens), NEXT))
    assert text_of(tokens) == text_of(anew)
    own = ChatTemplateRenderer(tokenizer_like("qwen3"))
    thoughtful = sampled(tokenizer_like("qwen3"), "<think>\nHm.\n</think>\n\nI wait.<|im_end|>")
    assert gone_on(own, call_of(own, thoughtful, tools=()), (NEXT,)) is None


def call_message(renderer: ChatTemplateRenderer, reply: tuple[int, ...]) -> Message:
    reading = renderer.reader()
    reading.feed(reply)
    _, read = reading.end()
    return Message(role="assistant", content=read.text, reasoning=read.reasoning)


def test_calls_and_results_are_written_and_gone_on_from() -> None:
    reply = (
        "<think>\nHm.\n</think>\n\n"
        '<tool_call>\n{"name": "move", "arguments": {"where": "north"}}\n</tool_call><|im_end|>'
    )
    call = call_of(renderer(), sampled(tokenizer_like("qwen3"), reply), tools=(MOVE,))

    tokens = gone_on(renderer(), call, (tool_result("a wall"),), tools=(MOVE,))

    text = text_of(tokens)
    assert reply in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\na wall\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
