"""Random Llamas of 0.3 million parameters, for smoke runs, and one of 0.6 that calls a tool.

They have SmolLM2's architecture, chat template and the first 4,096 tokens of its
vocabulary, so everything around the model runs as it does with the real one while
the model itself costs next to nothing. They know nothing and are not meant to learn.

`tiny` writes every token about as often as any other. `tiny-moves` writes the moves of
Sokoban far more often than the rest, in no order: it earns rewards by chance, some episodes
more than others, so what is done with rewards can be seen in a run of minutes.

`tiny-tools` has a chat template with tools, and mostly writes calls of a tool `move` whose
`direction` it draws, or ends with "Done.". It is a chain of words: what it writes depends on the
last token alone, until it is trained.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from longhaul_trainer.models.folder import (
    MESSAGE_END,
    LlamaShape,
    write_config,
    write_tokenizer,
    write_weights,
)
from longhaul_trainer.models.smollm2 import packaged_model, packaged_vocabulary

SHAPE = LlamaShape(
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_heads=2,
    num_key_value_heads=1,
    vocabulary_size=4096,
    context_tokens=4096,
    rope_theta=10000.0,
)

SPACE, LINE_END = "\u0120", "\u010a"
"""How a byte-level vocabulary writes them."""
MOVES: Mapping[str, float] = {
    **dict.fromkeys((f"{SPACE}{move}" for move in ("up", "down", "left", "right")), 8_000.0),
    LINE_END: 32_000.0,
    MESSAGE_END: 12_000.0,
}
"""How many times as likely as any other token `tiny-moves` is meant to write these: of its
replies about a third are one move on a line of its own, and they differ in length."""
SHARED = 0.3
"""Length of what all embeddings of `tiny-moves` have in common; next to it the random parts, of
length 0.16, turn a hidden state away from it but little."""


def write_tiny_model(
    folder: Path, *, seed: int = 0, favoured: Mapping[str, float] | None = None
) -> None:
    """Write the model as a Hugging Face folder, weights in float32.

    Args:
        folder: Exists and is empty.
        seed: Of the weights; the same seed gives the same file.
        favoured: Token, as the vocabulary spells it → how many times as likely as another it
            becomes, about; None: all tokens are about equally likely.
    """
    write_config(folder, SHAPE, dtype="float32")
    tokens, merges = packaged_vocabulary(packaged_model())
    kept = tokens[: SHAPE.vocabulary_size]
    known = set(kept)
    # A merge of two tokens makes a third; its id is higher, so cutting the list by id
    # leaves a tokenizer that is whole.
    write_tokenizer(folder, kept, [pair for pair in merges if "".join(pair) in known])
    weights = random_weights(SHAPE, seed=seed)
    if favoured is not None:
        favour(weights, {kept.index(token): times for token, times in favoured.items()})
    write_weights(folder, weights)


TOOL_TEMPLATE = """\
{%- set has_system = messages[0]['role'] == 'system' -%}
{%- if tools or has_system -%}
{{ '<|im_start|>system\\n' }}
{%- if has_system -%}{{ messages[0]['content'] }}{%- endif -%}
{%- if tools -%}
{%- if has_system -%}{{ '\\n\\n' }}{%- endif -%}
{{ 'Tools:\\n' }}
{%- for tool in tools -%}{{ tool | tojson + '\\n' }}{%- endfor -%}
{{ 'Call one with <tool_call>{"name": its name, "arguments": an object}</tool_call>.' }}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- for message in (messages[1:] if has_system else messages) -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'tool' -%}
{{ '<tool_response>' + message['content'] + '</tool_response>' }}
{%- else -%}
{%- if message['reasoning_content'] -%}
{{ '<think>' + message['reasoning_content'] + '</think>' }}
{%- endif -%}
{{ message['content'] }}
{%- for call in message['tool_calls'] or [] -%}
{{ '<tool_call>{"name": ' + call['function']['name'] | tojson + ', "arguments": ' }}
{{- call['function']['arguments'] | tojson + '}</tool_call>' }}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
"""Reasoning is kept in every turn, so that a prompt can always go on from a reply."""
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
DONE = "Done."
DONE_CHANCE = 0.15
STRAY_CHANCE = 0.02
"""That another token than one of the chain's follows."""


def write_tiny_tool_model(
    folder: Path,
    *,
    tool: str = "move",
    argument: str = "direction",
    values: Sequence[str] = ("up", "down", "left", "right"),
    context_tokens: int = SHAPE.context_tokens,
    seed: int = 0,
) -> None:
    """Write a model that calls a tool as a Hugging Face folder, weights in float32.

    A reply is a call of the tool, each of the values as often as another, or `DONE` with
    `DONE_CHANCE`, and ends with the end token; with `STRAY_CHANCE` a token it goes astray.

    Args:
        folder: Exists and is empty.
        tool: Name of the tool that it calls.
        argument: The one that it gives.
        values: Of which it draws the argument, each a text.
        context_tokens: Longest prompt and reply together.
        seed: Of the weights; the same seed gives the same file.
    """
    begin = f'{{"name": "{tool}", "arguments": {{"{argument}": "'
    ends = [value + '"}}' for value in values]
    tokens, merges = packaged_vocabulary(packaged_model())
    kept = tokens[: SHAPE.vocabulary_size]
    known, added = set(kept), [*TAGS, begin, *ends, DONE]
    vocabulary = [*kept, *added]
    shape = replace(
        SHAPE,
        vocabulary_size=len(vocabulary),
        context_tokens=context_tokens,
        ties_embeddings=False,
    )
    write_config(folder, shape, dtype="float32")
    write_tokenizer(
        folder,
        kept,
        [pair for pair in merges if "".join(pair) in known],
        added=added,
        chat_template=TOOL_TEMPLATE,
    )
    chain: dict[str, dict[str, float]] = {
        LINE_END: {"<tool_call>": 1 - DONE_CHANCE, DONE: DONE_CHANCE},
        "<tool_call>": {begin: 1.0},
        begin: dict.fromkeys(ends, 1 / len(ends)),
        **{end: {"</tool_call>": 1.0} for end in ends},
        "</tool_call>": {MESSAGE_END: 1.0},
        DONE: {MESSAGE_END: 1.0},
    }
    weights = random_weights(shape, seed=seed)
    weights["lm_head.weight"] = torch.zeros(shape.vocabulary_size, shape.hidden_size)
    _chain(
        weights,
        {
            vocabulary.index(word): {
                vocabulary.index(after): chance for after, chance in chances.items()
            }
            for word, chances in chain.items()
        },
    )
    write_weights(folder, weights)


def _chain(weights: dict[str, torch.Tensor], chances: Mapping[int, Mapping[int, float]]) -> None:
    """Make some tokens follow others, whatever stands before: token → that after it → chance.

    A token with followers has a direction of its own, along which the output favours them.
    """
    embedding, output = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    vocabulary_size, hidden_size = output.shape
    length = math.sqrt(hidden_size)  # of a normed hidden state
    others = math.log(vocabulary_size * (1 - STRAY_CHANCE) / STRAY_CHANCE)
    for place, (token, after) in enumerate(chances.items()):
        embedding[token, place] += length
        for follower, chance in after.items():
            output[follower, place] += (others + math.log(chance)) / length


def favour(weights: dict[str, torch.Tensor], times: Mapping[int, float]) -> None:
    """Make tokens likelier, whatever the context.

    All embeddings get a direction in common, so every hidden state points along it; those of
    `times` (token id → how many times as likely) go further. The output matrix is the embeddings'.
    """
    vocabulary_size, hidden = weights["model.embed_tokens.weight"].shape
    along = torch.full((vocabulary_size,), SHARED)
    for token, ratio in times.items():
        along[token] += math.log(ratio) / math.sqrt(hidden)  # the length of a normed hidden state
    direction = torch.ones(hidden) / math.sqrt(hidden)
    weights["model.embed_tokens.weight"] += along[:, None] * direction


def random_weights(shape: LlamaShape, *, seed: int) -> dict[str, torch.Tensor]:
    """Normal weights of deviation 0.02 and norms of one, under their Hugging Face names."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    key_value = hidden // shape.num_heads * shape.num_key_value_heads
    sizes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (key_value, hidden),
        "self_attn.v_proj": (key_value, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }

    def normal(size: tuple[int, int]) -> torch.Tensor:
        return torch.randn(size, generator=generator) * 0.02

    weights = {"model.embed_tokens.weight": normal((shape.vocabulary_size, hidden))}
    for layer in range(shape.num_layers):
        for name, size in sizes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = normal(size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = torch.ones(hidden)
    return {**weights, "model.norm.weight": torch.ones(hidden)}
