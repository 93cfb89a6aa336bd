# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Two programs make the same tokens of any text, or the slower one makes them."""

import json
import logging
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizerFast

from longhaul_core.types import Message
from longhaul_trainer.models import prepare_model
from longhaul_trainer.rendering.encoding import TextEncoder, first_difference, probes
from longhaul_trainer.rendering.renderer import ChatTemplateRenderer

Change = Callable[[dict[str, Any]], None]

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT_OSS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
ALPHABET = (
    *map(chr, range(0x250)),
    *"漢字かな한국어العربيةעבריתहिन्दीไทยдаΣςǅ²ⅧＡﬁſİ١１",
    *"😀🇩🇪👍🏽\u200b\u200d\ufeff\u00a0\u2028\u3000\u0301\u0308\ufffd",
    "e\u0301", "\r\n", "   \n", "\t ", "'s", "'LL", "don't", "12345", "www.a-b.c", "{\"a\": [1",
    "<|im_start|>", "<|im_end|>", "<|im_", "|>", " <tool_call>", "</tool_call>", "a</tool_call>b",
)  # fmt: skip


def split_by(*patterns: str) -> dict[str, Any]:
    """Texts are divided by patterns, as byte-level vocabularies since GPT-4's have it."""
    bare = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "type": "Sequence",
        "pretokenizers": [
            *(
                {
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": "Isolated",
                    "invert": False,
                }
                for pattern in patterns
            ),
            bare | {"use_regex": False},
        ],
    }


def like_llama(written: dict[str, Any]) -> None:
    """Words of the vocabulary need no merges."""
    written["pre_tokenizer"] = split_by(LLAMA)
    written["model"]["ignore_merges"] = True


CHANGES: dict[str, Change] = {
    "smollm2": lambda written: None,
    "qwen": lambda written: written.update(
        normalizer={"type": "NFC"}, pre_tokenizer=split_by(QWEN)
    ),
    "llama": like_llama,
    "gpt-oss": lambda written: written.update(pre_tokenizer=split_by(GPT_OSS)),
    "deepseek": lambda written: written.update(pre_tokenizer=split_by(*DEEPSEEK)),
}


@cache
def packaged(model: str = "tiny") -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer, whole or with the first part of its vocabulary."""
    return AutoTokenizer.from_pretrained(prepare_model(model))


@cache
def tokenizer_of(change: str) -> PreTrainedTokenizerFast:
    """SmolLM2's vocabulary, with texts divided as another family does, and tags of tools."""
    return written_anew(CHANGES[change], model="smollm2")


def written_anew(
    change: Change, *, tags: bool = True, model: str = "tiny"
) -> PreTrainedTokenizerFast:
    """A packaged tokenizer after a change, with tags of tools or without."""
    written = json.loads(packaged(model).backend_tokenizer.to_str())
    change(written)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(written)), eos_token="<|im_end|>"
    )
    tokenizer.chat_template = packaged().chat_template
    if tags:
        tokenizer.add_tokens(
            [
                AddedToken("<tool_call>", normalized=False, lstrip=True),
                AddedToken("</tool_call>", normalized=False, single_word=True),
            ]
        )
    return tokenizer


def texts(number: int, *, seed: int) -> list[str]:
    drawn = random.Random(seed)
    return ["".join(drawn.choices(ALPHABET, k=drawn.randint(1, 40))) for _ in range(number)]


def by_transformers(tokenizer: PreTrainedTokenizerFast) -> Callable[[str], list[int]]:
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def test_both_programs_make_the_same_tokens_of_any_text_which_families_divide_differently() -> None:
    drawn = texts(2_000, seed=7)
    divided: set[str] = set()
    for family in CHANGES:
        tokenizer = tokenizer_of(family)
        encode = TextEncoder(tokenizer)
        assert encode.uses_fastokens, family
        assert first_difference(encode, by_transformers(tokenizer), texts=drawn) is None, family
        assert len({token for text in drawn for token in encode(text)}) > 400, family
        divided.add(str([*map(encode, drawn[:200])]))
    assert len(divided) >= 4


def test_a_long_text_is_the_same_tokens_as_its_lines_one_by_one() -> None:
    encode = TextEncoder(tokenizer_of("qwen"))
    lines = [f"{number}. You walk {'north' if number % 3 else 'on'}.\n" for number in range(9_000)]
    long = "".join(lines)
    assert len(long) > 150_000  # from some length on it is divided among threads
    assert encode(long) == [token for line in lines for token in encode(line)]
    assert len(set(encode(long))) > 15


def test_a_byte_that_the_vocabulary_lacks_is_left_out_as_by_transformers() -> None:
    tokenizer = tokenizer_of("qwen")
    encode, text = TextEncoder(tokenizer), "a\x06b"
    assert encode.uses_fastokens
    assert (
        encode(text)
        == tokenizer.encode(text, add_special_tokens=False)
        == [*encode("a"), *encode("b")]
    )


def without_fastokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """Tokens of a text by a tokenizer that fastokens must not make."""
    encode = TextEncoder(tokenizer)
    assert not encode.uses_fastokens
    return encode(text)


def test_what_fastokens_does_not_read_transformers_tokenizes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    tokenizer = written_anew(lambda written: written.update(normalizer={"type": "NFKC"}))
    found = without_fastokens(tokenizer, "Ａ lamp")
    assert found == packaged().encode("A lamp", add_special_tokens=False)
    assert "NFKC" in caplog.text


def test_what_was_found_of_one_file_holds_for_that_file_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    forbidden = {"type": "NFKC"}
    for _ in range(2):  # the second is another object of the same file
        assert TextEncoder(written_anew(lambda written: None)).uses_fastokens
        found = without_fastokens(
            written_anew(lambda written: written.update(normalizer=forbidden)), "Ａ lamp"
        )
        assert found == packaged().encode("A lamp", add_special_tokens=False)
    assert caplog.text.count("NFKC") == 2  # each user is told


def test_a_tokenizer_with_an_encode_of_its_own_keeps_it() -> None:
    def shouted(self: PreTrainedTokenizerFast, text: str, *, add_special_tokens: bool) -> list[int]:
        shout = text.upper()
        return PreTrainedTokenizerFast.encode(self, shout, add_special_tokens=add_special_tokens)

    shouting = type("Shouting", (PreTrainedTokenizerFast,), {"encode": shouted})
    tokenizer = shouting(tokenizer_object=packaged().backend_tokenizer)
    found = without_fastokens(tokenizer, "a lamp")
    assert found == packaged().encode("A LAMP", add_special_tokens=False)


def test_a_tokenizer_that_cuts_or_fills_up_is_left_to_transformers() -> None:
    tokenizer = written_anew(lambda written: None)
    tokenizer.backend_tokenizer.enable_truncation(2)
    assert not TextEncoder(tokenizer).uses_fastokens


def test_a_program_that_reads_one_probe_otherwise_is_seen() -> None:
    tokenizer = tokenizer_of("qwen")
    known = by_transformers(tokenizer)
    wrongs: tuple[Callable[[str], list[int]], ...] = (
        lambda text: known(text.lower()),
        lambda text: known(text.replace("\u00a0", " ")),
        lambda text: known(text.replace("e\u0301", "e")),
        lambda text: known(text)[:20_000],  # of long texts alone
        lambda text: known(text.replace("</tool_call>", "</tool_call >")),
    )
    for wrong in wrongs:
        assert first_difference(wrong, known, texts=probes(tokenizer)) is not None
    assert first_difference(known, known, texts=probes(tokenizer)) is None


def test_prompts_have_the_tokens_of_the_template_by_transformers() -> None:
    tokenizer = tokenizer_of("qwen")
    names = [piece.content for piece in tokenizer.added_tokens_decoder.values()]
    drawn = [text for text in texts(50, seed=3) if not any(name in text for name in names)]
    assert len(drawn) > 25
    for number, text in enumerate(drawn):
        messages = (
            Message(role="system", content=f"Task {number}"), Message(role="user", content=text)
        )  # fmt: skip
        chat = [{"role": message.role, "content": message.text} for message in messages]
        known = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        renderer = _renderer_of("qwen")
        assert list(renderer.render(messages)) == known == list(renderer.render_chat(messages))


@cache
def _renderer_of(family: str) -> ChatTemplateRenderer:
    return ChatTemplateRenderer(tokenizer_of(family))
