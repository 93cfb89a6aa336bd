"""Tests for `longhaul_trainer.verl.renderer`, with the packaged models' tokenizers."""

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from longhaul_core.types import Message
from longhaul_trainer.models import prepare_model
from longhaul_trainer.verl.renderer import ChatTemplateRenderer, token_pieces

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
