"""Messages to tokens by the model's own chat template.

A prompt that goes on from an earlier call repeats that call's tokens as they were, and only
what is new is made into tokens: a sampled reply need not be the tokens that its text would be
made into, and may hold special tokens or an end that its text leaves out.

A message's text is rendered, and its pictures are left out: they are stored with the call, and
replayed, but no model reads them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from longhaul_core.types import Call, Message, SampledTokens

_THINK, _THOUGHT = "<think>", "</think>"


class ChatTemplateRenderer:
    """Renders with the tokenizer's chat template, and a prefix that the reply starts from."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, reply_prefix: str = "") -> None:
        self._tokenizer: Any = tokenizer
        self._prefix_text = reply_prefix
        self._prefix: list[int] = tokenizer.encode(reply_prefix, add_special_tokens=False)
        self._special = frozenset(tokenizer.all_special_ids)
        added = tokenizer.added_tokens_decoder.items()
        special = {token for token, piece in added if piece.special}
        # Some models mark thoughts by special tokens; left out, a thought would read as an answer.
        tags = {token for token, piece in added if piece.content in (_THINK, _THOUGHT)}
        self._left_out = (self._special | special) - tags

    @property
    def begun_thought(self) -> str:
        """`"<think>"` where the template ends every prompt within a thought, else nothing."""
        prompt = self._text([Message(role="user", content="?")])
        return _THINK if prompt.rstrip().endswith(_THINK) else ""

    def render(
        self,
        messages: Sequence[Message],
        *,
        earlier: Sequence[Call] = (),
        begins_reply: bool = True,
    ) -> tuple[int, ...]:
        """See `Renderer.render`."""
        prefix = self._prefix if begins_reply else []
        prefix_text = self._prefix_text if begins_reply else ""
        for call in reversed(earlier):
            if call.sampled is None or not _goes_on(messages, call, prefix=prefix_text):
                continue
            added = self._added_text(messages, call, call.sampled, prefix=prefix_text)
            if added is None:
                break
            known = (*call.sampled.prompt_tokens, *call.sampled.action_tokens)
            return (*known, *self._tokenizer.encode(added, add_special_tokens=False), *prefix)
        tokens = self._tokenizer.apply_chat_template(
            _chat(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return (*tokens, *prefix)

    def _added_text(
        self, messages: Sequence[Message], call: Call, sampled: SampledTokens, *, prefix: str
    ) -> str | None:
        """What the template adds to a call's prompt and reply; None if it writes them anew."""
        whole, known = self._text(messages), self._text(call.messages) + prefix + call.reply
        if not whole.startswith(known):
            return None  # the template changes a reply that is not the last
        added = whole[len(known) :]
        last = sampled.action_tokens[-1]
        if last in self._special:  # the reply ends with an end token, and needs no second one
            added = added.removeprefix(self._tokenizer.decode([last]))
        return added

    def _text(self, messages: Sequence[Message]) -> str:
        return self._tokenizer.apply_chat_template(
            _chat(messages), add_generation_prompt=True, tokenize=False
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Renderer.decode`. Where thoughts begin and end is text, special tokens or not."""
        return self._tokenizer.decode([token for token in tokens if token not in self._left_out])


def load_renderer(folder: Path, *, reply_prefix: str = "") -> ChatTemplateRenderer:
    """The renderer of a model's Hugging Face folder."""
    return ChatTemplateRenderer(AutoTokenizer.from_pretrained(folder), reply_prefix=reply_prefix)


def _goes_on(messages: Sequence[Message], call: Call, *, prefix: str) -> bool:
    """Whether the messages begin with a call's prompt and its reply."""
    num_before = len(call.messages)
    return (
        len(messages) > num_before
        and messages[num_before] == Message(role="assistant", content=prefix + call.reply)
        and tuple(messages[:num_before]) == call.messages
    )


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


def token_pieces(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> dict[int, bytes]:
    """The bytes that each token stands for, so that a viewer needs no tokenizer.

    A token of a byte-level vocabulary may be a part of a character; its bytes are kept as
    they are. Special tokens are given by their names.
    """
    ids = sorted(set(tokens))
    pieces = cast("list[str]", tokenizer.convert_ids_to_tokens(ids))
    special = set(tokenizer.all_special_ids)
    return {
        token: piece.encode() if token in special else _bytes_of(piece)
        for token, piece in zip(ids, pieces, strict=True)
    }


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes for bytes (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def _bytes_of(piece: str) -> bytes:
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.replace("\u2581", " ").encode()  # SentencePiece marks a space so
