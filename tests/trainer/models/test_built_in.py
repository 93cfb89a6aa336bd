# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Tests for the built-in models, as transformers loads them."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BatchEncoding, LlamaForCausalLM, PreTrainedTokenizerFast

from longhaul_trainer.models import hash_model, prepare_model
from longhaul_trainer.models.smollm2 import packaged_gguf

TEXTS = [
    "hello world",
    " leading and trailing spaces  ",
    "craft 4 oak planks using 1 oak log",
    "tabs\tand\nnew lines\r\n\n",
    "1234567890 3.14 x2",
    "naïve café – “quotes” ▁ ░▓█",
    "汉字とかな مرحبا 🙂👩‍👩‍👧",
    "<action>go to red ball 1</action>",
    "it's we'll DON'T",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(
    scope="module", params=["smollm2", "tiny", "tiny-moves", "tiny-tools", "tiny-vision"]
)
def tokenizer(request: pytest.FixtureRequest, cache: Path) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(prepare_model(request.param, cache))


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_tokenizer(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    tokens = tokenizer(text)["input_ids"]

    assert tokenizer.decode(tokens) == text
    assert tokenizer.bos_token_id not in tokens
    assert tokenizer.eos_token_id not in tokens


def test_the_end_token_is_that_of_a_message(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer("done<|im_end|>")["input_ids"][-1] == tokenizer.eos_token_id


def test_the_chat_template_adds_nothing_but_the_marks(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " 2+2? "},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "3+3?"},
    ]

    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n 2+2? <|im_end|>\n"
        "<|im_start|>assistant\n4<|im_end|>\n"
        "<|im_start|>user\n3+3?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_saved_tokenizer_is_the_same_one_and_small(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)

    assert (
        again("<|im_start|>user\nget 1 oak log")["input_ids"]
        == (tokenizer("<|im_start|>user\nget 1 oak log")["input_ids"])
    )
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10_000_000


def test_the_tiny_model_runs_and_is_the_same_each_time(cache: Path, tmp_path: Path) -> None:
    folder = prepare_model("tiny", cache)
    model = LlamaForCausalLM.from_pretrained(folder)

    logits = model(torch.arange(12)[None]).logits

    assert logits.shape == (1, 12, 4096)
    assert torch.isfinite(logits).all()
    assert len(logits[0, -1].unique()) > 1000
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert hash_model(prepare_model("tiny", tmp_path)) == hash_model(folder)


def test_the_model_of_the_smoke_run_writes_each_move_and_ends_lines_and_replies(
    cache: Path,
) -> None:
    folder = prepare_model("tiny-moves", cache)
    model = LlamaForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "# _ $ . #\nWhat is the next move?"}]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )

    probabilities = model(**prompt).logits[0, -1].detach().softmax(-1)

    written = (" up", " down", " left", " right", "\n", "<|im_end|>")
    shares = [float(probabilities[tokenizer.encode(text)].sum()) for text in written]
    assert all(len(tokenizer.encode(text)) == 1 for text in written)
    assert all(0.05 < share < 0.5 for share in shares), shares
    assert 0.8 < sum(shares) < 0.99


def test_the_model_with_tools_calls_one_with_an_argument_that_it_draws_or_ends(
    cache: Path,
) -> None:
    folder = prepare_model("tiny-tools", cache)
    model = LlamaForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    move = {"type": "function", "function": {"name": "move", "description": "", "parameters": {}}}
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Go."}],
        tools=[move],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )
    torch.manual_seed(0)

    generate: Any = model.generate  # pyright: ignore[reportAttributeAccessIssue]: bound to a protocol
    replies = tokenizer.batch_decode(
        generate(**prompt, do_sample=True, top_k=0, max_new_tokens=8, num_return_sequences=200)[
            :, prompt["input_ids"].shape[1] :
        ]
    )

    written = Counter(reply.partition("<|im_end|>")[0] for reply in replies)
    calls = [
        f'<tool_call>{{"name": "move", "arguments": {{"direction": "{where}"}}}}</tool_call>'
        for where in ("up", "down", "left", "right")
    ]
    assert all(25 < written[call] < 60 for call in calls), written
    assert 15 < written["Done."] < 50
    assert 2 < 200 - sum(written[reply] for reply in (*calls, "Done.")) < 40


@pytest.mark.slow
def test_the_real_model_knows_the_capital_of_france(cache: Path) -> None:
    folder = prepare_model("smollm2", cache)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    assert model.dtype is torch.bfloat16

    assert (
        greedy(model, tokenizer("The capital of France is"), 1) == tokenizer(" Paris")["input_ids"]
    )

    question = [{"role": "user", "content": "What is the capital of France?"}]
    chat = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=True)
    reply = greedy(model, chat, 32)
    assert "Paris" in tokenizer.decode(reply, skip_special_tokens=True)
    assert reply[-1] == tokenizer.eos_token_id


def greedy(model: LlamaForCausalLM, prompt: BatchEncoding, max_tokens: int) -> list[int]:
    """The most likely continuation, up to and with the end token."""
    tokens: list[int] = list(prompt["input_ids"])
    reply: list[int] = []
    while len(reply) < max_tokens and reply[-1:] != [2]:
        reply.append(int(model(torch.tensor([tokens + reply])).logits[0, -1].argmax()))
    return reply


@pytest.mark.slow
def test_the_weights_are_those_that_transformers_reads(cache: Path) -> None:
    """Our reader of the packaged file against the other one there is."""
    source = packaged_gguf()
    expected = LlamaForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16
    ).state_dict()
    found = LlamaForCausalLM.from_pretrained(prepare_model("smollm2", cache)).state_dict()

    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_the_tokens_are_those_that_transformers_reads(cache: Path) -> None:
    source = packaged_gguf()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    expected = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    found = AutoTokenizer.from_pretrained(prepare_model("smollm2", cache))

    assert found.get_vocab() == expected.get_vocab()
    for text in TEXTS:
        assert found(text)["input_ids"] == expected(text)["input_ids"]
