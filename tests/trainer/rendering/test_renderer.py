"""Tests for `longhaul_trainer.rendering.renderer`, with the packaged models' tokenizers."""

import copy
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import get_args

import pytest
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from longhaul_core.memory import InstructionPlace, PromptTemplate, build_memory
from longhaul_core.types import (
    Call,
    FinishReason,
    Message,
    Observation,
    Picture,
    SampledTokens,
    Step,
)
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.pieces import token_pieces
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer
from memories import taken_in
from steps import one_call_step, sampled_of

TEXTS = [
    "craft 4 oak planks using 1 oak log",
    " leading,  double and trailing spaces ",
    "tabs\tand\nnew lines\r\n\n",
    "汉字とかな 한국어",
    "مرحبا بالعالم שלום",
    "🙂👩‍👩‍👧🇩🇪 e\u0301 \u200d\ufeff",
    "naïve café – “quotes” ▁ ░▓█ \x00\x07",
    "<action>go to red ball 1</action>",
]


@pytest.fixture(scope="module", params=[pytest.param("smollm2", marks=pytest.mark.slow), "tiny"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(
        prepare_model(request.param, tmp_path_factory.getbasetemp() / "models")
    )


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_of_a_text_join_to_its_bytes(
    tokenizer: PreTrainedTokenizerFast, text: str
) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False)
    pieces = token_pieces(tokenizer, tokens)

    assert b"".join(pieces[token] for token in tokens) == text.encode()


def test_a_character_may_be_cut_between_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenizer.encode("龘", add_special_tokens=False)  # rare: no token of its own
    pieces = token_pieces(tokenizer, tokens)

    assert len(tokens) > 1
    with pytest.raises(UnicodeDecodeError):
        pieces[tokens[0]].decode()


def test_special_tokens_are_given_by_name(tokenizer: PreTrainedTokenizerFast) -> None:
    start, end = tokenizer.encode("<|im_start|><|im_end|>", add_special_tokens=False)

    assert token_pieces(tokenizer, [end, start, end]) == {
        start: b"<|im_start|>",
        end: b"<|im_end|>",
    }


def test_a_program_gets_the_bytes_of_each_token(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "Take the 🦀, naïve one."
    tokens = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)

    *pieces, end = ChatTemplateRenderer(tokenizer).token_bytes(tokens)

    assert end == b"<|im_end|>"
    assert b"".join(pieces).decode() == text


@pytest.mark.parametrize("special", [False, True])
def test_where_a_thought_begins_and_ends_is_read_whether_its_tokens_are_special_or_not(
    tokenizer: PreTrainedTokenizerFast, special: bool
) -> None:
    thinking = copy.deepcopy(tokenizer)
    tags = [AddedToken(text, special=special) for text in ("<think>", "</think>")]
    thinking.add_tokens(tags, special_tokens=special)
    reply = thinking.encode("<think>or look</think>go<|im_end|>", add_special_tokens=False)

    text = ChatTemplateRenderer(thinking).decode(reply)

    assert text == "<think>or look</think>go"
    assert thinking.decode(reply, skip_special_tokens=True) == ("or lookgo" if special else text)


@pytest.mark.parametrize(
    ("ending", "begun"),
    [("", ""), ("<think>\n", "<think>"), ("<think>\n\n</think>\n\n", "")],
)
def test_a_template_that_begins_replies_with_a_thought_is_recognised(
    tokenizer: PreTrainedTokenizerFast, ending: str, begun: str
) -> None:
    thinking = copy.deepcopy(tokenizer)
    thinking.chat_template = (
        "{% for message in messages %}{{ message['role'] + ' <think> ' + message['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant' + " + repr(ending) + " }}"
        "{% endif %}"
    )

    assert ChatTemplateRenderer(thinking).begun_thought == begun


def test_every_token_of_the_vocabulary_has_a_piece(tokenizer: PreTrainedTokenizerFast) -> None:
    everything = range(len(tokenizer))
    pieces = token_pieces(tokenizer, everything)

    assert list(pieces) == list(everything)
    assert all(pieces.values())


def test_a_prompt_ends_where_the_reply_is_to_begin(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content=" Press the red button. "),
    )
    tokens = ChatTemplateRenderer(tokenizer).render(messages)

    assert tokenizer.decode(list(tokens)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n Press the red button. <|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_reply_prefix_is_appended_as_tokens_of_its_own(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    messages = (Message(role="user", content="Now?"),)
    bare = ChatTemplateRenderer(tokenizer).render(messages)
    prefixed = ChatTemplateRenderer(tokenizer, reply_prefix="<action>").render(messages)

    assert prefixed[: len(bare)] == bare
    assert tokenizer.decode(list(prefixed[len(bare) :])) == "<action>"


def test_decoding_leaves_special_tokens_out(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenizer.encode("go north<|im_end|>", add_special_tokens=False)

    assert ChatTemplateRenderer(tokenizer).decode(tokens) == "go north"


# A prompt that goes on from the step before it


def played(
    tokenizer: PreTrainedTokenizerFast,
    replies: list[list[int]],
    *,
    prefix: str = "",
    kind: str = "full",
    template: PromptTemplate | None = None,
) -> list[Step]:
    """Steps as the episode loop makes them of sampled replies."""
    renderer = ChatTemplateRenderer(tokenizer, reply_prefix=prefix)
    template = template or PromptTemplate(system="Be brief.", reply_prefix=prefix)
    memory = build_memory(kind, size=2, template=template)
    steps: list[Step] = []
    calls: list[Call] = []
    for index, tokens in enumerate(replies):
        observation = Observation(text=f"Room {index}.")
        messages = memory.compose(observation)
        text = renderer.decode(tokens)
        steps.append(
            one_call_step(
                index,
                observation,
                messages=messages,
                prompt_tokens=renderer.render(messages, earlier=calls),
                action_tokens=tuple(tokens),
                behavior_logprobs=(0.0,) * len(tokens),
                reply=text,
                action=text,
                action_valid=True,
                reward=0.0,
                policy_version=0,
            )
        )
        calls += steps[-1].calls
        taken_in(memory, observation, reply=text, action=text)
    return steps


def prompt_of(step: Step) -> tuple[int, ...]:
    return sampled_of(step).prompt_tokens


def read_and_written(step: Step) -> tuple[int, ...]:
    return prompt_of(step) + sampled_of(step).action_tokens


def sampled(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Tokens of a text that are not those that the tokenizer makes of it: one a character."""
    tokens = [
        token
        for part in text.replace("<|", "\0<|").replace("|>", "|>\0").split("\0")
        for piece in ([part] if part.startswith("<|") else part)
        for token in tokenizer.encode(piece, add_special_tokens=False)
    ]
    assert tokens != tokenizer.encode(text, add_special_tokens=False)
    return tokens


REPLIES = {
    "with its end": "go north<|im_end|>",
    "cut": "go north and then",
    "that begins like the template goes on": "\n\n go",
    "with a special token inside": "go <|im_start|>north<|im_end|>",
    "of which half a character is left": "go 龘",
    "with another end": "go north<|endoftext|>",
}


@pytest.mark.parametrize("prefix", ["", "<action>"])
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_with_the_whole_past_a_prompt_goes_on_from_the_tokens_of_the_step_before(
    tokenizer: PreTrainedTokenizerFast, reply: str, prefix: str
) -> None:
    tokens = sampled(tokenizer, reply)
    if "龘" in reply:
        tokens = tokens[:-1]
    steps = played(tokenizer, [tokens] * 4, prefix=prefix)

    for before, step in pairwise(steps):
        known, prompt = read_and_written(before), prompt_of(step)
        assert prompt[: len(known)] == known
        added = tokenizer.decode(list(prompt[len(known) :]))
        ended = reply.endswith("<|im_end|>")
        assert added == (
            ("" if ended else "<|im_end|>")
            + f"\n<|im_start|>user\nRoom {step.index}.<|im_end|>\n<|im_start|>assistant\n{prefix}"
        )


def test_what_was_read_is_the_text_that_the_template_makes(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    replies = [sampled(tokenizer, "go north<|im_end|>"), sampled(tokenizer, "go south")]
    steps = played(tokenizer, [*replies, replies[0]])

    anew = ChatTemplateRenderer(tokenizer).render(steps[-1].calls[0].messages)

    assert tokenizer.decode(list(anew)) == tokenizer.decode(list(prompt_of(steps[-1])))
    assert anew != prompt_of(steps[-1])


@pytest.mark.parametrize("kind", ["window", "none"])
def test_a_prompt_that_does_not_go_on_is_made_by_the_template(
    tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    steps = played(tokenizer, [sampled(tokenizer, "go north<|im_end|>")] * 3, kind=kind)

    for step in steps:
        assert prompt_of(step) == ChatTemplateRenderer(tokenizer).render(step.calls[0].messages)


ANSWER = "Write one action in <action></action>, and nothing else."


def leading(before: Step, step: Step) -> int:
    """How many leading tokens two prompts have in common."""
    pairs = zip(prompt_of(before), prompt_of(step), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_prompts_of_a_window_begin_alike_for_as_long_as_the_instruction_is_in_front(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """What begins alike, an engine that keeps earlier prompts reads once."""
    reply = sampled(tokenizer, "go north<|im_end|>")
    shared: dict[str, int] = {}
    for place in get_args(InstructionPlace):
        template = PromptTemplate(system="Hi.", instruction=ANSWER, instruction_place=place)
        steps = played(tokenizer, [reply] * 6, kind="window", template=template)
        shared[place] = min(leading(before, step) for before, step in pairwise(steps[2:]))

    num_words = len(tokenizer.encode(ANSWER, add_special_tokens=False))
    assert shared["system"] - shared["user"] >= num_words


def test_a_whole_history_goes_on_wherever_the_instruction_is(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    template = PromptTemplate(system="Hi.", instruction=ANSWER, instruction_place="system")
    steps = played(tokenizer, [sampled(tokenizer, "go north")] * 3, template=template)

    for before, step in pairwise(steps):
        known = read_and_written(before)
        assert prompt_of(step)[: len(known)] == known


def test_another_reply_than_the_one_that_was_written_is_made_into_tokens_anew(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    (step,) = played(tokenizer, [sampled(tokenizer, "go north<|im_end|>")])
    messages = (
        *step.calls[0].messages,
        Message(role="assistant", content="go south"),
        Message(role="user", content="Room 1."),
    )
    renderer = ChatTemplateRenderer(tokenizer)

    assert renderer.render(messages, earlier=step.calls) == renderer.render(messages)


def test_a_template_that_changes_earlier_replies_has_the_last_word(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    """As those do that leave the thoughts of earlier turns out."""
    stripping = copy.deepcopy(tokenizer)
    assert isinstance(stripping.chat_template, str)
    stripping.chat_template = stripping.chat_template.replace(
        "message['content']", "message['content'].split('.')[-1]"
    )
    assert stripping.chat_template != tokenizer.chat_template
    steps = played(stripping, [sampled(stripping, "I think. go north<|im_end|>")] * 2)

    anew = ChatTemplateRenderer(stripping).render(steps[1].calls[0].messages)
    assert prompt_of(steps[1]) == anew
    assert "I think" not in stripping.decode(list(anew))


def going_on(call: Call, text: str) -> tuple[Message, ...]:
    """What an agent that repeats the call's conversation asks next."""
    return (
        *call.messages,
        Message(role="assistant", content=call.reply),
        Message(role="user", content=text),
    )


def test_of_several_conversations_a_prompt_goes_on_from_the_one_that_it_repeats(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    north, south = (
        played(tokenizer, [sampled(tokenizer, f"go {where}<|im_end|>")])[0]
        for where in ("north", "south")
    )  # one prompt, two replies
    calls = (*north.calls, *south.calls)

    for step in (north, south):
        tokens = renderer.render(going_on(step.calls[0], "And now?"), earlier=calls)
        known = read_and_written(step)
        assert tokens[: len(known)] == known

    longer = played(tokenizer, [sampled(tokenizer, "go north<|im_end|>")] * 2)
    calls = tuple(call for step in longer for call in step.calls)
    tokens = renderer.render(going_on(longer[1].calls[0], "And now?"), earlier=calls)
    known = read_and_written(longer[1])  # the latest of those that it repeats
    assert tokens[: len(known)] == known


def test_a_call_without_tokens_is_rendered_like_any_other_text(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    (step,) = played(tokenizer, [sampled(tokenizer, "go north<|im_end|>")])
    elsewhere = replace(step.calls[0], sampled=None, trained=False)
    renderer, messages = ChatTemplateRenderer(tokenizer), going_on(elsewhere, "And now?")

    assert renderer.render(messages, earlier=(elsewhere,)) == renderer.render(messages)


def test_what_is_no_action_does_not_begin_with_the_reply_prefix(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    plain = ChatTemplateRenderer(tokenizer)
    prefixed = ChatTemplateRenderer(tokenizer, reply_prefix="<action>")
    asked = (Message(role="user", content="What is the plan?"),)

    tokens = prefixed.render(asked, begins_reply=False)
    assert tokens == plain.render(asked)

    reply = tuple(sampled(tokenizer, "north first<|im_end|>"))
    call = Call(
        messages=asked,
        reply="north first",
        sampled=SampledTokens(
            prompt_tokens=tokens,
            action_tokens=reply,
            behavior_logprobs=(0.0,) * len(reply),
            policy_version=0,
        ),
        purpose="plan",
    )
    later = prefixed.render(going_on(call, "And now?"), earlier=(call,), begins_reply=False)
    assert later[: len(tokens) + len(reply)] == tokens + reply
    assert str(tokenizer.decode(list(later))).endswith("<|im_start|>assistant\n")


def test_for_a_model_of_text_a_prompt_with_pictures_is_its_text(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    renderer, picture = ChatTemplateRenderer(tokenizer), Picture.of(b"a map")
    shown = Message(role="user", content=("Now?", picture))

    assert renderer.render((shown,)) == renderer.render((Message(role="user", content="Now?"),))
    refusing = ChatTemplateRenderer(tokenizer, leaves_pictures_out=False)
    with pytest.raises(ValueError, match=r'1 pictures, and the model reads none; .*= "never"'):
        refusing.render((shown,))


def _shown(reply: str, *, sampled: tuple[int, ...] | None = None, cut: bool = False) -> Call:
    return Call(
        messages=(),
        reply=reply,
        sampled=None
        if sampled is None
        else SampledTokens(
            prompt_tokens=(1,), action_tokens=sampled, behavior_logprobs=None, policy_version=0
        ),
        finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
        trained=False,
    )


@pytest.mark.parametrize("text", TEXTS)
def test_an_imitated_reply_is_its_text_and_the_end_token(
    tokenizer: PreTrainedTokenizerFast, text: str
) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    end = tokenizer.eos_token_id

    *tokens, last = renderer.reply_tokens(_shown(text))

    assert last == end
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    assert list(renderer.reply_tokens(_shown(text, cut=True))) == tokens


def test_an_imitated_reply_that_spells_a_mark_has_none(tokenizer: PreTrainedTokenizerFast) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    end = tokenizer.eos_token_id

    *tokens, last = renderer.reply_tokens(_shown("go<|im_end|>\n<|im_start|>system"))

    assert last == end
    assert not {*tokenizer.all_special_ids} & {*tokens}


def test_tokens_that_say_the_same_here_are_imitated_as_they_were(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    renderer = ChatTemplateRenderer(tokenizer)
    end = tokenizer.eos_token_id
    assert isinstance(end, int)
    letters = tuple(
        token for letter in "left" for token in tokenizer.encode(letter, add_special_tokens=False)
    )
    assert letters != tuple(tokenizer.encode("left", add_special_tokens=False))

    assert renderer.reply_tokens(_shown("left", sampled=(*letters, end))) == (*letters, end)
    assert renderer.reply_tokens(_shown("left", sampled=letters, cut=True)) == letters
    # of another tokenizer, or without the end that it had
    anew = renderer.reply_tokens(_shown("left"))
    assert renderer.reply_tokens(_shown("left", sampled=(*letters[:-1], end))) == anew
    assert renderer.reply_tokens(_shown("left", sampled=(10**6, end))) == anew
    assert renderer.reply_tokens(_shown("left", sampled=letters)) == anew
