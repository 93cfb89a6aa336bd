# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# (transformers annotates little of what it returns)
"""Messages to tokens by the model's own chat template.

A prompt that goes on from an earlier call repeats that call's tokens as they were, and only
what is new is made into tokens: a sampled reply need not be the tokens that its text would be
made into, and may hold special tokens or an end that its text leaves out.

What messages, tools and calls say is text, also where it spells a control token (`marks.py`).

Pictures are rendered for a model that reads them: the template writes a placeholder where each
stands, which is repeated as often as the picture takes tokens (`pictures.py`). For a model of text
they are left out where the run agrees: they are stored with the call, and replayed. The gateway
refuses such a call of a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from longhaul_core.types import (
    Call,
    FinishReason,
    Message,
    Picture,
    SampledTokens,
    Tool,
    pictures_of,
)
from longhaul_trainer.rendering.chat import ChatTemplate
from longhaul_trainer.rendering.pictures import PictureReader, load_picture_reader
from longhaul_trainer.rendering.pieces import Pieces
from longhaul_trainer.rendering.reading import Reading

_THINK, _THOUGHT = "<think>", "</think>"


class ChatTemplateRenderer:
    """Renders with the tokenizer's chat template, and a prefix that the reply starts from."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        reply_prefix: str = "",
        pictures: PictureReader | None = None,
        leaves_pictures_out: bool = True,
        template: str | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> None:
        """Render for one model.

        Args:
            tokenizer: With the chat template.
            reply_prefix: What replies to environments start from.
            pictures: Of a model that reads them; None for one of text.
            leaves_pictures_out: Whether prompts for a model of text may be without the pictures of
                their messages; otherwise they are refused with a ValueError.
            template: A chat template in Jinja, in place of the tokenizer's.
            variables: Of the chat template, beside messages and tools.
        """
        self._tokenizer: Any = tokenizer
        self._pictures = pictures
        self._leaves_pictures_out = leaves_pictures_out
        self._prefix_text = reply_prefix
        self._prefix: list[int] = tokenizer.encode(reply_prefix, add_special_tokens=False)
        self._special = frozenset(tokenizer.all_special_ids)
        added = tokenizer.added_tokens_decoder.items()
        special = {token for token, piece in added if piece.special}
        # Some models mark thoughts by special tokens; left out, a thought would read as an answer.
        tags = {token for token, piece in added if piece.content in (_THINK, _THOUGHT)}
        self._left_out = (self._special | special) - tags
        self._template = ChatTemplate(
            tokenizer,
            shows_pictures=pictures is not None,
            template=template,
            variables=variables,
        )

    @property
    def begun_thought(self) -> str:
        """`"<think>"` where the template ends a question within a thought, else nothing."""
        return self._template.begun_thought

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
            new = self._template.tokens(added)
            shown = pictures_of(messages[len(call.messages) + 1 :])
            return (*known, *self._with_pictures(new, shown), *prefix)
        tokens = self._template.tokens(self._template.text(messages))
        return (*self._with_pictures(tokens, pictures_of(messages)), *prefix)

    def reply_tokens(self, call: Call) -> tuple[int, ...]:
        """A reply that this run's model did not write, as it would: text, and its end token.

        Where the tokens are known and say the same here, as those of an episode that the same model
        played, they stay as they were.

        Args:
            call: With the reply; one that a limit cut has no end token.
        """
        ends = call.finish_reason is not FinishReason.LENGTH
        end: int = self._tokenizer.eos_token_id
        if call.sampled is not None:
            known = call.sampled.action_tokens
            in_vocabulary = all(token < self.vocabulary_size for token in known)
            if (
                in_vocabulary
                and (known[-1:] == (end,)) is ends
                and self.decode(known) == call.reply
            ):
                return known
        text = self._template.tokens(self._template.reply_as_text(call.reply))
        return (*text, end) if ends else tuple(text)

    def _with_pictures(self, tokens: Sequence[int], pictures: Sequence[Picture]) -> Sequence[int]:
        if self._pictures is not None:
            return self._pictures.expanded(tokens, pictures)
        if pictures and not self._leaves_pictures_out:
            raise ValueError(
                f"the prompt has {len(pictures)} pictures, and the model reads none; name a model "
                'that reads them, or agree by model.pictures = "never"'
            )
        return tokens

    def _added_text(
        self, messages: Sequence[Message], call: Call, sampled: SampledTokens, *, prefix: str
    ) -> str | None:
        """What the template adds to a call's prompt and reply; None if it writes them anew."""
        whole = self._template.text(messages)
        known = self._template.text(call.messages)
        known += self._template.reply_as_text(prefix + call.reply)
        if not whole.startswith(known):
            return None  # the template changes a reply that is not the last
        added = whole[len(known) :]
        last = sampled.action_tokens[-1]
        if last in self._special:  # the reply ends with an end token, and needs no second one
            added = added.removeprefix(self._tokenizer.decode([last]))
        return added

    @property
    def reads_pictures(self) -> bool:
        """Whether the model is shown the pictures of its prompts."""
        return self._pictures is not None

    def require_places(self, tokens: Sequence[int], messages: Sequence[Message]) -> None:
        """Refuse tokens whose places for pictures are not those of the messages' pictures.

        Raises:
            ValueError: See `PictureReader.require_places`; never for a model of text.
        """
        if self._pictures is not None:
            self._pictures.require_places(tokens, messages)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Tokens of a text that no template goes round; names of special tokens are those."""
        return tuple(self._template.tokens(text))

    @property
    def vocabulary_size(self) -> int:
        """Tokens that have a text; every token is below it."""
        return len(self._tokenizer)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Renderer.decode`. Where thoughts begin and end is text, special tokens or not."""
        return self._tokenizer.decode([token for token in tokens if token not in self._left_out])

    def token_bytes(self, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """See `ChatRenderer.token_bytes`."""
        return tuple(self._all_pieces[token] for token in tokens)

    def render_chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """See `ChatRenderer.render_chat`. The run's reply prefix is for environments alone."""
        tokens = self._template.tokens(self._template.text(messages, tools=tools))
        return tuple(self._with_pictures(tokens, pictures_of(messages)))

    def added(
        self, call: Call, messages: Sequence[Message], *, tools: Sequence[Tool] = ()
    ) -> tuple[int, ...] | None:
        """See `ChatRenderer.added`.

        The template writes the reply and what is new after one short question. Where it writes the
        reply as the model did, what it writes after the reply's end token is what is new. Where it
        does not (most leave the thoughts of earlier turns out), the conversation cannot go on.
        """
        if call.sampled is None or not messages:
            return None
        prompt, action = call.sampled.prompt_tokens, call.sampled.action_tokens
        after_result = call.messages[-1].role == "tool"
        beginning = self._template.beginning(bool(tools), after_result=after_result)
        begins = beginning.tokens_of_reply
        if prompt[len(prompt) - len(begins) :] != begins:
            return None  # not a prompt of this template
        reading = self.reader(tools=tools, after_result=after_result)
        reading.feed(action)
        _, read = reading.end()
        if reading.cut:
            return None
        reply = Message(
            role="assistant",
            content=read.text,
            reasoning=read.reasoning,
            tool_calls=read.tool_calls,
        )
        text = self._template.added_text(reading, reply, messages, tools=tools)
        if text is None:
            return None
        end, *written = self._template.tokens(text)
        added = self._with_pictures(written, pictures_of(messages))
        return (*(() if action[-1:] == (end,) else (end,)), *added)

    def reader(
        self, *, tools: Sequence[Tool] = (), salt: str = "", after_result: bool = False
    ) -> Reading:
        """See `ChatRenderer.reader`.

        Args:
            tools: See there.
            salt: Names the reply within its episode, such as by its step and choice. The ids of
                calls are of it and of what the reply has before them; without it, turns that begin
                alike have calls of the same ids.
            after_result: See there.

        Raises:
            RendererFailure: How the model writes tool calls is not known.
        """
        reading = self._template.begin_reading(
            self._pieces.__getitem__, tools=tools, after_result=after_result
        )
        reading.salt(salt)
        return reading

    @cached_property
    def _all_pieces(self) -> Pieces:
        return Pieces(self._tokenizer, left_out=frozenset())

    @cached_property
    def _pieces(self) -> Pieces:
        """The bytes of tokens in replies: the tags by which these are read are among them."""
        tags = self._template.syntax(()).markers
        added = self._tokenizer.added_tokens_decoder.items()
        shown = {token for token, piece in added if piece.content in tags}
        return Pieces(self._tokenizer, left_out=self._left_out - shown)


def load_renderer(
    folder: Path,
    *,
    reply_prefix: str = "",
    template: str | None = None,
    variables: Mapping[str, object] | None = None,
) -> ChatTemplateRenderer:
    """The renderer of a model's Hugging Face folder; see `ChatTemplateRenderer`."""
    return ChatTemplateRenderer(
        AutoTokenizer.from_pretrained(folder),
        reply_prefix=reply_prefix,
        pictures=load_picture_reader(folder),
        template=template,
        variables=variables,
    )


def _goes_on(messages: Sequence[Message], call: Call, *, prefix: str) -> bool:
    """Whether the messages begin with a call's prompt and its reply."""
    num_before = len(call.messages)
    return (
        len(messages) > num_before
        and messages[num_before] == Message(role="assistant", content=prefix + call.reply)
        and tuple(messages[:num_before]) == call.messages
    )
