"""Tests for programs' conversations: prompts with tools, and prompts that go on from a call."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from renderers.configs import Llama3RendererConfig, Qwen3RendererConfig
from renderers.llama_3 import Llama3Renderer
from renderers.qwen3 import Qwen3Renderer

from chat_templates import tokenizer_like
from longhaul_core.errors import RendererFailure
from longhaul_core.policy import ChatRenderer
from longhaul_core.types import Message, Tool
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer, load_renderer
from trainer.rendering.conversations import (
    ASKED,
    MOVE,
    call_of,
    gone_on,
    renderer_like,
    sampled,
    tool_call,
    tool_result,
)

FAMILIES = (
    *("qwen2.5", "qwen3", "qwen-coder", "thinking", "llama-3", "gpt-oss", "tiny-tools"),
    *("mistral", "mistral-v11", "deepseek-v3", "deepseek-v3.1"),
)
NEXT = Message(role="user", content="And now? 龘")
CALLED = Message(role="assistant", content="", tool_calls=(tool_call(),))

CALL = '<tool_call>\n{"name":  "move", "arguments": {"where" : "north"}}\n</tool_call>'
FENCED = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>move\n```json\n"
    '{"where" : "north"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
XML = (
    "<tool_call>\n<function=move>\n<parameter=where>\nnorth\n</parameter>\n</function>\n"
    "</tool_call>"
)


def text_of(family: str, tokens: Sequence[int] | None) -> str:
    assert tokens is not None
    return str(tokenizer_like(family).decode(list(tokens)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_has_its_tools_the_calls_and_their_results(family: str) -> None:
    renderer = renderer_like(family)

    text = text_of(
        family, renderer.render_chat((*ASKED, CALLED, tool_result("a wall")), tools=(MOVE,))
    )

    assert isinstance(renderer, ChatRenderer)
    tools, _, rest = text.partition("Go north – then wait.")
    assert '"steps"' in tools
    assert rest.index("move") < rest.index("north") < rest.index("a wall")


def test_the_text_is_the_templates_own() -> None:
    messages = [{"role": message.role, "content": message.text} for message in ASKED]
    tokenizer = tokenizer_like("qwen3")

    assert text_of("qwen3", renderer_like("qwen3").render_chat(ASKED)) == (
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    )


def test_a_reply_prefix_is_for_environments_alone() -> None:
    renderer = ChatTemplateRenderer(tokenizer_like("qwen2.5"), reply_prefix="<action>")

    assert renderer.render_chat(ASKED) == renderer_like("qwen2.5").render_chat(ASKED)


def test_a_template_without_tools_is_told_of_them_in_the_system_message() -> None:
    renderer = load_renderer(prepare_model("tiny"))
    result = tool_result("a wall")

    told = renderer.render_chat((*ASKED, CALLED, result, result, NEXT), tools=(MOVE,))
    alone = renderer.render_chat((NEXT,), tools=(MOVE,))

    text = renderer.decode(told)
    assert text.startswith("system\nBe brief.\n\nYou may call tools.")
    assert '"name": "move", "description": "Go somewhere."' in text
    assert (
        'assistant\n<tool_call>\n{"name": "move", "arguments": {"where": "north"}}\n</tool_call>\n'
        "user\n<tool_response>\na wall\n</tool_response>\n"
        "<tool_response>\na wall\n</tool_response>\n"
        "user\nAnd now?"
    ) in text
    assert renderer.decode(alone).startswith("system\nYou may call tools.")
    assert "You may call" not in renderer.decode(renderer.render_chat(ASKED))


def test_a_call_in_a_syntax_that_nobody_knows_is_an_error_that_names_the_model() -> None:
    renderer = renderer_like("unknown")

    with pytest.raises(RendererFailure, match=r"(?s)tiny.*none of the known.*\(\(\(.*jinja"):
        renderer.render_chat(ASKED, tools=(MOVE,))
    with pytest.raises(RendererFailure, match="none of the known"):
        renderer.reader(tools=(MOVE,))
    assert renderer.render_chat(ASKED)
    assert renderer.reader().end()[1].text == ""


def test_messages_that_a_template_refuses_are_an_error_that_says_why() -> None:
    two = replace(CALLED, tool_calls=(tool_call(), tool_call(id="call_2")))

    with pytest.raises(RendererFailure, match=r"(?s)tiny.*refuses messages of.*one call at once"):
        renderer_like("llama-3").render_chat((*ASKED, two, tool_result("x")), tools=(MOVE,))


def test_a_later_system_message_is_refused_by_the_words_that_claude_code_looks_for() -> None:
    strict = (
        "{%- for message in messages[1:] if message.role == 'system' -%}"
        "{{ raise_exception('System message must be at the beginning.') }}{%- endfor -%}"
    )
    tokenizer = tokenizer_like("qwen2.5")
    renderer = ChatTemplateRenderer(tokenizer, template=f"{strict}{tokenizer.chat_template}")
    later = Message(role="system", content="It is dark.")

    with pytest.raises(RendererFailure, match="must be at the beginning") as refused:
        renderer.render_chat((*ASKED, later))
    assert re.search(r"role .{0,2}system", str(refused.value))
    assert "not supported" in str(refused.value)
    assert renderer.render_chat(ASKED)


def test_pictures_and_arguments_that_are_no_json_do_not_stop_a_prompt() -> None:
    called = replace(CALLED, tool_calls=(tool_call('{"where": '),))

    text = text_of("qwen2.5", renderer_like("qwen2.5").render_chat((*ASKED, called), tools=(MOVE,)))

    assert '"{\\"where\\": "' in text


# A prompt that goes on from a call


@pytest.mark.parametrize(
    ("family", "reply", "new", "added"),
    [
        (
            "qwen2.5",
            f"I go.\n{CALL}<|im_end|>",
            (tool_result("a wall"), tool_result("a door")),
            "\n<|im_start|>user\n<tool_response>\na wall\n</tool_response>\n"
            "<tool_response>\na door\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen2.5",
            "I wait.<|im_end|>",
            (NEXT,),
            "\n<|im_start|>user\nAnd now? 龘<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen2.5",
            "I wait.<|im_end|>",
            (Message(role="user", content="Hm."), Message(role="assistant", content="Yes?"), NEXT),
            "\n<|im_start|>user\nHm.<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>"
            "user\nAnd now? 龘<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen2.5",
            "I was cut",
            (NEXT,),
            "<|im_end|>\n<|im_start|>user\nAnd now? 龘<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            f"<think>\nHm.\n</think>\n\n{CALL}<|im_end|>",
            (tool_result("a wall"),),
            "\n<|im_start|>user\n<tool_response>\na wall\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "qwen3",
            "I wait.<|im_end|>",
            (NEXT,),
            "\n<|im_start|>user\nAnd now? 龘<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen-coder",
            f"I go. {XML}<|im_end|>",
            (tool_result("a wall"),),
            "\n<|im_start|>user\n<tool_response>\na wall\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "llama-3",
            '{"name": "move",  "parameters": {"where": "north"}}<|eot_id|>',
            (tool_result("a wall"),),
            '<|start_header_id|>ipython<|end_header_id|>\n\n"a wall"<|eot_id|>'
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
            'to=functions.move <|constrain|>json<|message|>{"where":"north"}<|call|>',
            (tool_result("a wall"),),
            '<|start|>functions.move to=assistant<|channel|>commentary<|message|>"a wall"<|end|>'
            "<|start|>assistant",
        ),
        (
            "tiny-tools",
            f"<think>Hm.</think>{CALL}<|im_end|>",
            (tool_result("a wall"), NEXT),
            "\n<|im_start|>tool\n<tool_response>a wall</tool_response><|im_end|>\n"
            "<|im_start|>user\nAnd now? 龘<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name":"move", "arguments": {"where" : "north"}, "id": "a1b2c3d4e"}]'
            "</s>",
            (tool_result("a wall"),),
            '[TOOL_RESULTS]{"content": "a wall", "call_id": "74196fe72"}[/TOOL_RESULTS]',
        ),
        (
            "mistral-v11",
            'I go.[TOOL_CALLS]move[ARGS]{"where" : "north"}',
            (tool_result("a wall"),),
            "</s>[TOOL_RESULTS]call_1[TOOL_CONTENT]a wall[/TOOL_RESULTS]",
        ),
        ("mistral-v11", "I wait.</s>", (NEXT,), "[INST]And now? 龘[/INST]"),
        (
            "deepseek-v3",
            f"I go.{FENCED}<｜end▁of▁sentence｜>",
            (tool_result("a wall"), tool_result("a door")),
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>a wall<｜tool▁output▁end｜>\n"
            "<｜tool▁output▁begin｜>a door<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
        ),
        (
            "deepseek-v3.1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>move<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            (tool_result("a wall"), NEXT),
            "<｜tool▁output▁begin｜>a wall<｜tool▁output▁end｜><｜User｜>And now? 龘"
            "<｜Assistant｜></think>",
        ),
    ],
)
def test_a_prompt_goes_on_from_the_tokens_of_a_call(
    family: str, reply: str, new: Sequence[Message], added: str
) -> None:
    renderer = renderer_like(family)
    call = call_of(renderer, sampled(tokenizer_like(family), reply))
    assert call.sampled is not None
    known = call.sampled.prompt_tokens + call.sampled.action_tokens

    tokens = gone_on(renderer, call, new, tools=(MOVE,))

    assert tokens is not None
    assert tokens[: len(known)] == known
    assert text_of(family, tokens[len(known) :]) == added


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("deepseek-v3", f"I go.{FENCED}<｜end▁of▁sentence｜>"),
        ("llama-3", '{"name": "move", "parameters": {"where": "north"}}<|eot_id|>'),
    ],
)
def test_a_prompt_goes_on_from_a_reply_to_a_result(family: str, reply: str) -> None:
    """Where no mark begins such a reply (DeepSeek's), and where one does."""
    renderer, tokens = renderer_like(family), sampled(tokenizer_like(family), reply)
    first = call_of(renderer, tokens)
    results = (tool_result("a wall"),)
    prompt = gone_on(renderer, first, results, tools=(MOVE,))
    assert prompt is not None
    second = call_of(renderer, tokens, messages=(*ASKED, CALLED, *results), prompt=prompt)

    longer = gone_on(renderer, second, results, tools=(MOVE,))

    assert longer is not None
    assert longer[: len(prompt) + len(tokens)] == (*prompt, *tokens)
    assert text_of(family, longer).count("a wall") == 2


def test_where_tools_stand_before_the_last_question_a_new_one_begins_a_row() -> None:
    call = call_of(renderer_like("mistral"), sampled(tokenizer_like("mistral"), "I wait.</s>"))

    assert gone_on(renderer_like("mistral"), call, (NEXT,), tools=(MOVE,)) is None
    assert gone_on(renderer_like("mistral"), replace(call, tools=()), (NEXT,)) is not None


def test_an_id_that_a_template_refuses_is_written_as_nine_letters_of_its_own() -> None:
    ids = ("call_1", "call_" + 24 * "a", "a1b2c3d4e")
    called = replace(CALLED, tool_calls=tuple(tool_call(id=id) for id in ids))

    text = text_of(
        "mistral",
        renderer_like("mistral").render_chat(
            (*ASKED, called, *(tool_result("x", id=id) for id in ids)), tools=(MOVE,)
        ),
    )

    written = re.findall(r'"id": "([0-9a-z]{9})"', text)
    assert written == re.findall(r'"call_id": "([0-9a-z]{9})"', text)
    assert len(set(written)) == 3
    assert written[2] == "a1b2c3d4e"


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen3", "<think>\nHm.\n</think>\n\nI wait.<|im_end|>"),
        ("qwen3", "<think>\n\n</think>\n\nI wait.<|im_end|>"),
        ("thinking", "Hm.\n</think>\n\nI wait.<|im_end|>"),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
            "I wait.<|return|>",
        ),
    ],
)
def test_where_the_template_leaves_thoughts_out_a_conversation_does_not_go_on(
    family: str, reply: str
) -> None:
    renderer = renderer_like(family)
    call = call_of(renderer, sampled(tokenizer_like(family), reply))

    assert gone_on(renderer, call, (NEXT,), tools=(MOVE,)) is None
    anew = renderer.render_chat((*ASKED, Message(role="assistant", content="I wait."), NEXT))
    assert "Hm." not in text_of(family, anew)


@pytest.mark.parametrize(
    "reply", ["<think>\nHm", "a <tool_call>" + '{"name": "move", "arguments": {"whe']
)
def test_a_reply_that_was_cut_in_a_thought_or_a_call_is_not_gone_on_from(reply: str) -> None:
    call = call_of(renderer_like("tiny-tools"), sampled(tokenizer_like("tiny-tools"), reply))

    assert gone_on(renderer_like("tiny-tools"), call, (NEXT,), tools=(MOVE,)) is None


def test_a_call_with_malformed_arguments_stands_as_it_was_written() -> None:
    """A program answers it with what is wrong, and the model tries again."""
    reply = '<tool_call>{"name": "move", "arguments": {"where": north}}</tool_call><|im_end|>'
    call = call_of(renderer_like("qwen2.5"), sampled(tokenizer_like("qwen2.5"), reply))

    tokens = gone_on(renderer_like("qwen2.5"), call, (tool_result("no JSON"),), tools=(MOVE,))

    assert f"{reply}\n<|im_start|>user\n<tool_response>\nno JSON" in text_of("qwen2.5", tokens)


def test_what_is_no_prompt_of_the_template_is_not_gone_on_from() -> None:
    renderer, tokenizer = renderer_like("qwen2.5"), tokenizer_like("qwen2.5")
    reply = sampled(tokenizer, "I wait.<|im_end|>")
    raw = call_of(renderer, reply, prompt=tokenizer.encode("Once upon a time"))
    elsewhere = replace(raw, sampled=None, trained=False)

    assert gone_on(renderer, raw, (NEXT,)) is None
    assert gone_on(renderer, elsewhere, (NEXT,)) is None
    assert gone_on(renderer, call_of(renderer, reply, tools=()), ()) is None


@pytest.mark.parametrize("text", ["ends <|im_end|> here", "begins <|im_start|> here"])
def test_words_of_the_template_within_a_reply_do_not_move_its_end(text: str) -> None:
    """Written by other tokens than those that the words are."""
    renderer, tokenizer = renderer_like("qwen2.5"), tokenizer_like("qwen2.5")
    spelled = [token for letter in text for token in tokenizer.encode(letter)]
    call = call_of(renderer, [*spelled, *tokenizer.encode("<|im_end|>")], tools=())

    tokens = gone_on(renderer, call, (NEXT,))

    assert tokens is None or text_of("qwen2.5", tokens).count("And now?") == 1
    assert tokens is None or f"{text}<|im_end|>\n<|im_start|>user" in text_of("qwen2.5", tokens)


def test_messages_that_a_template_refuses_do_not_go_on() -> None:
    two = replace(CALLED, tool_calls=(tool_call(), tool_call(id="call_2")))
    call = call_of(
        renderer_like("llama-3"), sampled(tokenizer_like("llama-3"), "I wait.<|eot_id|>")
    )

    assert gone_on(renderer_like("llama-3"), call, (NEXT, two, NEXT), tools=(MOVE,)) is None


def test_a_result_is_named_by_the_call_that_it_answers() -> None:
    family = "gpt-oss"
    other = Tool(name="look")
    reply = sampled(
        tokenizer_like(family), "<|channel|>commentary to=functions.look <|message|>{}<|call|>"
    )
    call = call_of(renderer_like(family), reply, tools=(MOVE, other))

    tokens = gone_on(renderer_like(family), call, (tool_result("dark"),), tools=(MOVE, other))

    assert "<|start|>functions.look to=assistant" in text_of(family, tokens)


@pytest.mark.parametrize(
    ("family", "reply", "new"),
    [
        ("qwen3", f"<think>\nHm.\n</think>\n\n{CALL}<|im_end|>", (tool_result("a wall"),)),
        ("qwen3", f"I go.\n{CALL}", (tool_result("a wall"), tool_result("a door"))),
        ("qwen3", "<think>\nHm.\n</think>\n\nI wait.<|im_end|>", (NEXT,)),
        (
            "llama-3",
            '{"name": "move", "parameters": {"where": "north"}}<|eot_id|>',
            (tool_result("a wall"),),
        ),
        ("llama-3", "I wait.<|eot_id|>", (NEXT,)),
        ("llama-3", "I was cut", (NEXT,)),
    ],
)
def test_a_prompt_goes_on_as_in_the_package_that_knows_these_models_by_name(
    family: str, reply: str, new: Sequence[Message]
) -> None:
    """`renderers` writes the templates of some models in Python, one class for each."""
    tokenizer = tokenizer_like(family)
    call = call_of(renderer_like(family), sampled(tokenizer, reply))
    assert call.sampled is not None
    known: Any = tokenizer  # their protocol of a tokenizer, which transformers' does not state
    theirs = (
        Qwen3Renderer(known, Qwen3RendererConfig())
        if family == "qwen3"
        else Llama3Renderer(known, Llama3RendererConfig())
    )

    expected = theirs.bridge_to_next_turn(
        list(call.sampled.prompt_tokens),
        list(call.sampled.action_tokens),
        [{"role": message.role, "content": message.text} for message in new],
    )
    tokens = gone_on(renderer_like(family), call, new, tools=(MOVE,))

    assert (None if tokens is None else list(tokens)) == (
        None if expected is None else expected.token_ids
    )


def test_many_threads_render_and_read_at_once() -> None:
    renderer = ChatTemplateRenderer(tokenizer_like("qwen3"))  # nothing was asked of it yet
    tokenizer = tokenizer_like("qwen3")

    def play(place: int) -> tuple[tuple[int, ...] | None, str]:
        reply = sampled(tokenizer, f"<think>\n{place}\n</think>\n\n{CALL}<|im_end|>")
        reading = renderer.reader(tools=(MOVE,))
        reading.feed(reply)
        call = call_of(renderer, reply, messages=(Message(role="user", content=str(place)),))
        tokens = gone_on(renderer, call, (tool_result(f"{place}"),), tools=(MOVE,))
        return tokens, reading.end()[1].reasoning

    with ThreadPoolExecutor(8) as pool:
        played = list(pool.map(play, range(40)))

    assert [reasoning for _, reasoning in played] == [str(place) for place in range(40)]
    for place in (0, 39):
        assert played[place] == play(place)
