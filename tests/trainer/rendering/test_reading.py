"""Tests for `longhaul_trainer.rendering.reading`: replies read while they are written."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from chat_templates import QWEN25, tokenizer_like
from longhaul_core.policy import ReadReply, ReplyPart
from longhaul_core.types import Message, Tool, ToolCall
from longhaul_trainer.rendering.pieces import token_pieces
from longhaul_trainer.rendering.reading import Reading
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from trainer.rendering.conversations import ASKED, MOVE, renderer_like, sampled

LISTS = ("mistral", "mistral-v11", "deepseek-v3", "deepseek-v3.1")
FAMILIES = (
    *("qwen2.5", "qwen3", "qwen-coder", "thinking", "llama-3", "gpt-oss", "tiny-tools"),
    *LISTS,
    "deepseek-r1",
)


def read(family: str, reply: str, *, tools: Sequence[Tool] = (MOVE,), end: str = "") -> ReadReply:
    """A reply whose tokens all came at once."""
    tokens = sampled(tokenizer_like(family), reply + end)
    reading = renderer_like(family).reader(tools=tools)
    reading.feed(tokens)
    return reading.end()[1]


def joined(parts: Sequence[ReplyPart]) -> tuple[str, str, list[tuple[str, str, str]]]:
    """What a program has that put the parts together."""
    calls: dict[int, tuple[str, str, str]] = {}
    for part in parts:
        if part.tool_place is not None:
            id, name, arguments = calls.get(part.tool_place, ("", "", ""))
            calls[part.tool_place] = (
                id + part.tool_id,
                name + part.tool_name,
                arguments + part.tool_arguments,
            )
    return (
        "".join(part.text for part in parts),
        "".join(part.reasoning for part in parts),
        [calls[place] for place in sorted(calls)],
    )


def as_parts(reply: ReadReply) -> tuple[str, str, list[tuple[str, str, str]]]:
    """The same of the whole reply."""
    calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    return reply.text, reply.reasoning, calls


CALL = '<tool_call>\n{"name": "move", "arguments": {"where": "north", "steps": 2}}\n</tool_call>'
NORTH = '{"where": "north", "steps": 2}'


def in_fence(arguments: str, *, before: str = "function") -> str:
    """A call as DeepSeek V3 and R1 write it."""
    head = f"<｜tool▁call▁begin｜>{before}<｜tool▁sep｜>move\n"
    return f"{head}```json\n{arguments}\n```<｜tool▁call▁end｜>"


BEGUN, ENDED = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
DEEPSEEK_V3 = f"{BEGUN}{in_fence(NORTH)}{ENDED}"
DEEPSEEK_V31 = f"{BEGUN}<｜tool▁call▁begin｜>move<｜tool▁sep｜>{NORTH}<｜tool▁call▁end｜>{ENDED}"


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen2.5", f"I go. \n{CALL}<|im_end|>"),
        ("qwen3", f"<think>\nWhere to?\n</think>\n\nI go.\n{CALL}<|im_end|>"),
        ("thinking", f"Where to?\n</think>\n\nI go.\n{CALL}<|im_end|>"),
        (
            "qwen-coder",
            "I go.\n<tool_call>\n<function=move>\n<parameter=where>\nnorth\n</parameter>\n"
            "<parameter=steps>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>",
        ),
        ("llama-3", '{"name": "move", "parameters": {"where": "north", "steps": 2}}<|eot_id|>'),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Where to?<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>I go.<|end|><|start|>assistant<|channel|>commentary to=functions.move "
            f"<|constrain|>json<|message|>{NORTH}<|call|>",
        ),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>Where to?<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>I go.<|end|><|start|>assistant to=functions.move<|channel|>commentary json"
            f"<|message|>{NORTH}<|call|>",
        ),
        ("tiny-tools", f"<think>Where to?</think>I go.{CALL}<|im_end|>"),
        ("mistral", f'I go. [TOOL_CALLS] [{{"name": "move", "arguments": {NORTH}}}]</s>'),
        (
            "mistral",
            f'I go.[TOOL_CALLS][{{"arguments": {NORTH}, "name": "move", "id": "a1b2c3d4e"}}]</s>',
        ),
        ("mistral-v11", f"I go.[TOOL_CALLS]move[ARGS]{NORTH}</s>"),
        ("mistral-v11", f"I go.[TOOL_CALLS]move[CALL_ID]a1b2c3d4e[ARGS]{NORTH}</s>"),
        ("mistral-v11", f"I go.[TOOL_CALLS]move{NORTH}</s>"),
        ("mistral-v11", f"I go.[TOOL_CALLS] move [ARGS] {NORTH}</s>"),
        ("mistral-v11", f"I go.[TOOL_CALLS]move [CALL_ID] a1b2c3d4e [ARGS] {NORTH}</s>"),
        ("deepseek-v3", f"I go.\n\n{DEEPSEEK_V3}<｜end▁of▁sentence｜>"),
        ("deepseek-v3", f"<think>\nWhere to?\n</think>\n\nI go.{DEEPSEEK_V3}<｜end▁of▁sentence｜>"),
        ("deepseek-v3.1", f"I go.{DEEPSEEK_V31}<｜end▁of▁sentence｜>"),
    ],
)
def test_text_thought_and_call_are_read_as_each_family_writes_them(family: str, reply: str) -> None:
    found = read(family, reply)

    thinks = "Where to?" in reply
    assert found.text == ("" if family == "llama-3" else "I go.")
    assert found.reasoning == ("Where to?" if thinks else "")
    assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == [
        ("move", {"where": "north", "steps": 2})
    ]


def test_a_reply_to_a_result_is_within_a_thought_only_where_the_template_begins_one() -> None:
    found: dict[tuple[str, bool], tuple[str, str]] = {}
    for family in ("deepseek-r1", "deepseek-v3", "thinking"):
        for after_result in (False, True):
            reading = renderer_like(family).reader(tools=(MOVE,), after_result=after_result)
            reading.feed(sampled(tokenizer_like(family), "I go."))
            _, reply = reading.end()
            found[family, after_result] = reply.text, reply.reasoning

    text, thought = ("I go.", ""), ("", "I go.")
    assert found == {
        ("deepseek-r1", False): thought,
        ("deepseek-r1", True): text,
        ("deepseek-v3", False): text,
        ("deepseek-v3", True): text,
        ("thinking", False): thought,
        ("thinking", True): thought,
    }


def test_a_value_that_looks_like_a_number_is_text_where_the_tool_says_so() -> None:
    reply = (
        "<tool_call>\n<function=move>\n<parameter=where>\n7\n</parameter>\n"
        "<parameter=steps>\n7\n</parameter>\n</function>\n</tool_call>"
    )

    (call,) = read("qwen-coder", reply).tool_calls

    assert json.loads(call.arguments) == {"where": "7", "steps": 7}


@pytest.mark.parametrize(
    "reply",
    [
        "no call at all",
        "<tool_call>move north</tool_call>",
        '<tool_call>{"name": "move", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "move", "where": "north"</tool_call> and more',
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
        "<tool_call>" + '{"a":' * 5_000 + "</tool_call>",
        "<tool_call>[" * 40,
        "<tool_call>",
        "<tool_call></tool_call>",
        "words </tool_call> words",
        "a < b, <tool, <tool_call",
    ],
)
def test_a_malformed_call_is_text_as_it_was_written(reply: str) -> None:
    found = read("qwen2.5", reply)

    assert found == ReadReply(text=reply)


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "move"}', '{"a": 1}'),
        ('{"name": "move", "parameters": {"arguments": {}}}', '{"arguments": {}}'),
        ('{"name": "move", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"type": "function", "name": "move", "arguments": {"a":1}}', '{"a":1}'),
        ('{"name": "move"}', "{}"),
        ('{"name": "move", "arguments": null}', "{}"),
        ('{"name": "move", "arguments": {"a": "}</b>{"}, "id": 7}', '{"a": "}</b>{"}'),
        ('{"name": "move", "arguments": {"a": 1}', '{"a": 1}'),
        ('{"name": "move", "arguments": {"a": "\\"}"}}', '{"a": "\\"}"}'),
        ('{"name": "move", "arguments": {"a": 1, }}', '{"a": 1, }'),
        ('{"name": "move", "arguments": {"a": "x}}', '{"a": "x}}'),
    ],
)
def test_the_arguments_of_a_call_are_as_the_model_wrote_them(written: str, arguments: str) -> None:
    found = read("qwen2.5", f"<tool_call>{written}</tool_call> Done.<|im_end|>")

    assert [(call.name, call.arguments) for call in found.tool_calls] == [("move", arguments)]
    assert found.text == "Done."


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("mistral", "[TOOL_CALLS] I go north"),
        ("mistral", "[TOOL_CALLS][north]"),
        ("mistral", '[TOOL_CALLS][{"name": 7, "arguments": {}}]'),
        ("mistral", '[TOOL_CALLS] [ {"where": "north"} ] and more'),
        ("mistral", "[TOOL_CALLS][{"),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral-v11", "[TOOL_CALLS]I go {north}"),
        ("mistral-v11", "[TOOL_CALLS]move[ARGS]"),
        ("mistral-v11", "[TOOL_CALLS][ARGS]{}"),
        ("mistral-v11", '[TOOL_CALLS][{"name": "move", "arguments": {}}]'),
        ("mistral-v11", "[TOOL_CALLS]" * 3),
        ("deepseek-v3", f"{BEGUN} and nothing"),
        ("deepseek-v3", f"nothing {ENDED}"),
        ("deepseek-v3", in_fence(NORTH, before="browser")),
        ("deepseek-v3", BEGUN + in_fence("north") + " so."),
        ("deepseek-v3", "<｜tool▁call▁begin｜>move {}<｜tool▁call▁end｜>"),
        ("deepseek-v3.1", f"{BEGUN}\n<｜tool▁call▁begin｜>go north<｜tool▁sep｜>{{}}"),
        ("deepseek-v3.1", f"{BEGUN}<｜tool▁call▁begin｜>mo"),
    ],
)
def test_a_malformed_call_of_mistral_or_deepseek_is_text_as_it_was_written(
    family: str, reply: str
) -> None:
    assert read(family, reply) == ReadReply(text=reply)


@pytest.mark.parametrize(
    ("family", "reply", "arguments", "text"),
    [
        (
            "mistral",
            '[TOOL_CALLS] [{"name": "move", "arguments": {"a": "}]["}}, '
            '{"name": "move", "arguments": {}, "id": "}]x"}]Done.',
            ['{"a": "}]["}', "{}"],
            "Done.",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "move"}, {"name": "move", "arguments": {"a": 1',
            ["{}", '{"a": 1'],
            "",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "move", "arguments": {"a": 1}} and]',
            ['{"a": 1}'],
            "and]",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "move", "arguments": {"a": 1}}, so',
            ['{"a": 1}'],
            ", so",
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "move", "arguments": {"a": "x}}][TOOL_CALLS][{"name": "move"}]',
            ['{"a": "x}}]', "{}"],
            "",
        ),
        (
            "mistral-v11",
            '[TOOL_CALLS]move[ARGS]{"a": "x}[TOOL_CALLS]move[ARGS]{"a":1}',
            ['{"a": "x}', '{"a":1}'],
            "",
        ),
        (
            "mistral-v11",
            '[TOOL_CALLS]move[ARGS]{"a": 1}[TOOL_CALLS]go north',
            ['{"a": 1}'],
            "[TOOL_CALLS]go north",
        ),
        (
            "deepseek-v3",
            BEGUN + in_fence('{"a": "```"}') + "\n" + in_fence('{"a": x}') + ENDED,
            ['{"a": "```"}', '{"a": x}'],
            "",
        ),
        (
            "deepseek-v3",
            BEGUN + in_fence('{"a": "x}') + in_fence("{}") + ENDED,
            ['{"a": "x}\n```', "{}"],
            "",
        ),
        (
            "deepseek-v3.1",
            DEEPSEEK_V31[: -len(ENDED)] + DEEPSEEK_V31[len(BEGUN) :] + " Done.",
            [NORTH, NORTH],
            "Done.",
        ),
    ],
)
def test_calls_of_mistral_and_deepseek_stand_beside_each_other(
    family: str, reply: str, arguments: list[str], text: str
) -> None:
    found = read(family, reply)

    assert [(call.name, call.arguments) for call in found.tool_calls] == [
        ("move", each) for each in arguments
    ]
    assert found.text == text
    assert len({call.id for call in found.tool_calls}) == len(arguments)


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
texts = st.text('aé龘🙂"\\{}[]<|`,: \n', max_size=6)
scalars = texts | st.integers() | st.booleans() | st.none()
objects = st.dictionaries(texts, st.recursive(scalars, st.lists, max_leaves=4))


@settings(max_examples=150)
@given(
    family=st.sampled_from(("qwen2.5", *LISTS)),
    text=st.sampled_from(["", "I go.", "龘🙂 {a} [b]"]),
    calls=st.lists(st.tuples(names, objects), min_size=1, max_size=3),
)
def test_what_a_template_writes_of_calls_is_read_back(
    family: str, text: str, calls: list[tuple[str, dict[str, object]]]
) -> None:
    tokenizer = tokenizer_like(family)
    tool_calls = tuple(
        ToolCall(id=f"call_{place}", name=name, arguments=json.dumps(arguments))
        for place, (name, arguments) in enumerate(calls)
    )
    message = Message(role="assistant", content=text, tool_calls=tool_calls)
    asked, whole = (
        str(tokenizer.decode([*renderer_like(family).render_chat(messages, tools=(MOVE,))]))
        for messages in (ASKED, (*ASKED, message))
    )
    written = whole.removeprefix(asked).partition(str(tokenizer.eos_token))[0]

    found = read(family, written, end=str(tokenizer.eos_token))

    assert found.text == text
    assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == calls


def test_calls_beside_each_other_and_text_around_them_are_apart() -> None:
    found = read("qwen2.5", f"One.\n{CALL}\n{CALL}\nTwo. {CALL}  <|im_end|>")

    assert found.text == "One.\nTwo."
    assert len(found.tool_calls) == 3
    assert len({call.id for call in found.tool_calls}) == 3


def test_a_call_after_one_with_an_open_quote_is_read_by_itself() -> None:
    broken = '<tool_call>{"name": "move", "arguments": {"a": "x}}</tool_call>'

    found = read("qwen2.5", broken + CALL)

    assert [call.arguments for call in found.tool_calls] == ['{"a": "x}}', NORTH]


@pytest.mark.parametrize(
    ("family", "before", "mark", "after"),
    [
        ("qwen2.5", '<tool_call>{"name": "move", "arguments": ', "</tool_call>", "}</tool_call>"),
        ("qwen2.5", '<tool_call>{"name": "move", "arguments": ', "</tool_call>", "}"),
        (
            "tiny-tools",
            '<tool_call>{"arguments": ',
            "</tool_call>",
            ', "name": "move"}</tool_call>',
        ),
        ("mistral", '[TOOL_CALLS][{"name": "move", "arguments": ', "[TOOL_CALLS]", "}]"),
        ("mistral", '[TOOL_CALLS][{"arguments": ', "[TOOL_CALLS]", ', "name": "move"}]'),
        ("mistral-v11", "[TOOL_CALLS]move[ARGS]", "[TOOL_CALLS]", ""),
        (
            "deepseek-v3.1",
            f"{BEGUN}<｜tool▁call▁begin｜>move<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            f"<｜tool▁call▁end｜>{ENDED}",
        ),
    ],
)
def test_a_tag_in_a_string_of_the_arguments_does_not_end_the_call(
    family: str, before: str, mark: str, after: str
) -> None:
    arguments = f'{{"where": "see {mark} and \\" {mark} here"}}'
    reply = f"I write.{before}{arguments}{after}"

    found = read(family, reply)
    one_by_one = renderer_like(family).reader(tools=(MOVE,))
    for token in sampled(tokenizer_like(family), reply):
        one_by_one.feed([token])

    assert found.text == "I write."
    assert [json.loads(call.arguments) for call in found.tool_calls] == [json.loads(arguments)]
    assert one_by_one.end()[1] == found


def test_a_tag_ends_a_call_whose_string_never_ends() -> None:
    broken = '<tool_call>{"name": "move", "arguments": {"a": "x</tool_call>'

    for rest in ("", " It is {so}.", f"\n{CALL}", ' He said: "no" }.'):
        first, *others = read("qwen2.5", broken + rest).tool_calls

        assert first.arguments == '{"a": "x'
        assert [call.arguments for call in others] == ([NORTH] if CALL in rest else [])


def test_without_tools_everything_but_a_thought_is_text() -> None:
    assert read("qwen2.5", f"Now: {CALL} ", tools=()) == ReadReply(text=f"Now: {CALL} ")
    assert read("qwen3", f"<think>\na\n</think>\n\nb {CALL}", tools=()) == ReadReply(
        text=f"b {CALL}", reasoning="a"
    )


def test_a_call_within_a_thought_is_a_thought() -> None:
    found = read("qwen3", f"<think>I could {CALL} now</think>No.")

    assert found == ReadReply(text="No.", reasoning=f"I could {CALL} now")


@pytest.mark.parametrize(
    ("family", "reply"),
    [
        ("qwen3", "<think>a"),
        ("qwen2.5", '<tool_call>{"name": "move", "arguments": {"a'),
        ("llama-3", '{"name": "move", "parameters": {"a'),
        ("gpt-oss", "<|channel|>analysis<|message|>a"),
        ("mistral", '[TOOL_CALLS] [{"name": "move", "arguments": {"a'),
        ("mistral-v11", '[TOOL_CALLS]move[ARGS]{"a'),
        ("deepseek-v3", f'{BEGUN}{in_fence("")[:-20]}{{"a'),
        ("deepseek-v3.1", f'{BEGUN}<｜tool▁call▁begin｜>move<｜tool▁sep｜>{{"a'),
    ],
)
def test_a_reply_that_was_cut_in_a_thought_or_a_call_says_so(family: str, reply: str) -> None:
    reading = renderer_like(family).reader(tools=(MOVE,))
    reading.feed(sampled(tokenizer_like(family), reply))

    _, found = reading.end()

    assert reading.cut
    assert not found.text
    assert found.reasoning == "a" or found.tool_calls[0].arguments == '{"a'


def test_text_and_arguments_are_told_while_they_are_written() -> None:
    tokenizer, reading = tokenizer_like("qwen2.5"), renderer_like("qwen2.5").reader(tools=(MOVE,))
    before = sampled(tokenizer, "I go now")

    assert joined(reading.feed(before))[0] == "I go now"
    assert not reading.feed(sampled(tokenizer, "  <tool_"))
    assert not reading.feed(sampled(tokenizer, 'call>{"name": "move", "arguments": '))
    ((id, name, _),) = joined(reading.feed(sampled(tokenizer, '{"where": "no')))[2]
    assert (id[:5], name) == ("call_", "move")
    assert joined(reading.feed(sampled(tokenizer, 'rth"')))[2] == [("", "", 'rth"')]
    assert joined(reading.feed(sampled(tokenizer, "}}</tool_call>")))[2] == [("", "", "}")]


@pytest.mark.parametrize(
    ("family", "before"),
    [
        ("mistral", '[TOOL_CALLS] [{"name": "move", "arguments": '),
        ("mistral-v11", "[TOOL_CALLS]move[ARGS]"),
        ("deepseek-v3", in_fence("")[: -len("\n```<｜tool▁call▁end｜>")]),
        ("deepseek-v3.1", f"{BEGUN}<｜tool▁call▁begin｜>move<｜tool▁sep｜>"),
    ],
)
def test_arguments_of_mistral_and_deepseek_are_told_while_they_are_written(
    family: str, before: str
) -> None:
    tokenizer, reading = tokenizer_like(family), renderer_like(family).reader(tools=(MOVE,))

    assert not reading.feed(sampled(tokenizer, before))
    ((id, name, begun),) = joined(reading.feed(sampled(tokenizer, '{"where": "no')))[2]
    assert (id[:5], name, begun) == ("call_", "move", '{"where": "no')
    assert joined(reading.feed(sampled(tokenizer, 'rth"')))[2] == [("", "", 'rth"')]


def test_a_character_is_told_when_it_is_whole() -> None:
    tokenizer, reading = tokenizer_like("qwen2.5"), renderer_like("qwen2.5").reader()
    tokens = tokenizer.encode("a龘🙂", add_special_tokens=False)
    assert len(tokens) > 5

    told = [joined(reading.feed([token]))[0] for token in tokens]

    assert [text for text in told if text] == ["a", "龘", "🙂"]
    reading.feed(tokenizer.encode("龘", add_special_tokens=False)[:1])
    assert reading.end()[1].text == "a龘🙂\ufffd"


def test_a_vocabulary_of_words_with_bytes_for_the_rest_is_read_as_well() -> None:
    """As SentencePiece makes it, for Llama 2 and Gemma."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581go", "\u2581", "n"]
    backend = Tokenizer(
        BPE({word: place for place, word in enumerate(words)}, [], byte_fallback=True)
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.chat_template = QWEN25
    tokens = [words.index("n"), words.index("\u2581go"), *(1 + byte for byte in "龘\n".encode())]
    reading = ChatTemplateRenderer(tokenizer).reader()

    told = [joined(reading.feed([token]))[0] for token in tokens]

    assert told == ["n", " go", "", "", "龘", ""]
    assert reading.end()[1].text == tokenizer.decode(tokens) == "n go龘\n"
    assert b"".join(token_pieces(tokenizer, tokens)[token] for token in tokens).decode() == (
        "n go龘\n"
    )


def test_a_token_that_the_tokenizer_does_not_have_is_nothing() -> None:
    """Engines may sample one: a model's output is often wider than its vocabulary."""
    reading = renderer_like("qwen2.5").reader()
    reading.feed([10**6, *sampled(tokenizer_like("qwen2.5"), "a"), 10**6])

    assert reading.end()[1].text == "a"


MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"name": "move", "arguments": ',
    '{"name": "move", "parameters": {"where"',
    '{"where": "no}"}',
    "}",
    '"arguments"',
    ", ",
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|start|>assistant to=functions.move<|channel|>commentary json<|message|>",
    "<|end|>",
    "<|call|>",
    "<|im_end|>",
    "<function=move>",
    "<parameter=where>\nup\n</parameter>",
    "</function>",
    "<tool",
    "</",
    " \n",
    "word",
    "龘🙂",
    CALL,
    '{"where": "</tool_call>[TOOL_CALLS]"}',
    '"',
    "[TOOL_CALLS]",
    "[",
    "]",
    "move[ARGS]",
    " [ARGS] ",
    "[CALL_ID]a1",
    " ",
    BEGUN,
    ENDED,
    "<｜tool▁call▁begin｜>",
    "function<｜tool▁sep｜>",
    "move\n```json\n",
    "```",
    "<｜tool▁call▁end｜>",
)
replies = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=5)), max_size=12).map("".join)


@settings(max_examples=150)
@given(family=st.sampled_from(FAMILIES), reply=replies, data=st.data())
def test_the_parts_are_the_whole_however_the_tokens_came(
    family: str, reply: str, data: st.DataObject
) -> None:
    tokens = sampled(tokenizer_like(family), reply)
    tokens = tokens[: data.draw(st.integers(0, len(tokens)), label="cut at")]
    places = data.draw(st.lists(st.integers(0, len(tokens))).map(sorted), label="chunks end at")
    whole, one_by_one, in_chunks = (renderer_like(family).reader(tools=(MOVE,)) for _ in range(3))

    def parts_of(reading: Reading, chunks: Sequence[Sequence[int]]) -> list[ReplyPart]:
        parts = [part for chunk in chunks for part in reading.feed(chunk)]
        last, found = reading.end()
        assert joined([*parts, *last]) == as_parts(found)
        found_by.append(found)
        return parts

    found_by: list[ReadReply] = []
    parts_of(whole, [tokens])
    parts_of(one_by_one, [[token] for token in tokens])
    bounds = [0, *places, len(tokens)]
    parts_of(in_chunks, [tokens[a:b] for a, b in pairwise(bounds)])

    assert found_by[0] == found_by[1] == found_by[2]
    assert whole.cut == one_by_one.cut == in_chunks.cut


@settings(max_examples=50)
@given(text=st.text(max_size=20))
def test_a_plain_reply_reads_as_it_is_decoded(text: str) -> None:
    tokens = sampled(tokenizer_like("qwen2.5"), text + "<|im_end|>")

    reading = renderer_like("qwen2.5").reader()
    reading.feed(tokens)

    assert reading.end()[1].text == renderer_like("qwen2.5").decode(tokens)


def test_the_ids_of_a_reply_are_its_own_and_the_same_each_time() -> None:
    first, again = read("qwen2.5", CALL), read("qwen2.5", CALL)
    other = read("qwen2.5", f"So. {CALL}")

    assert first == again
    assert first.tool_calls[0].id != other.tool_calls[0].id


def test_with_a_salt_each_turns_ids_are_its_own() -> None:
    def id_of(salt: str) -> str:
        reading = renderer_like("qwen2.5").reader(tools=(MOVE,), salt=salt)
        reading.feed(sampled(tokenizer_like("qwen2.5"), CALL))
        return reading.end()[1].tool_calls[0].id

    assert id_of("3/0") == id_of("3/0")
    assert len({id_of("3/0"), id_of("4/0"), id_of("")}) == 3
