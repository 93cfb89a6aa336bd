"""What a program reads of a reply, while it is written and when it is whole."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from longhaul_core.policy import Completion, ReadReply, ReplyPart, ReplyReader
from longhaul_core.types import Call, FinishReason
from longhaul_trainer.gateway.exchange import Choice

__all__ = ["ReplyWatch", "TextReader"]


class TextReader:
    """Reads the reply to a prompt without a chat: all of it is text."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """A reader of one reply.

        Args:
            decode: Text of tokens.
        """
        self._decode = decode
        self._tokens: list[int] = []
        self._begin = self._read = 0
        """Text is decoded from `_begin` on, and was handed on up to `_read`. The tokens between
        give what follows its spaces."""

    def feed(self, tokens: Sequence[int]) -> Sequence[ReplyPart]:
        """See `ReplyReader.feed`; a character whose bytes are not all there waits for them."""
        self._tokens += tokens
        return self._parts(ends=False)

    def end(self) -> tuple[Sequence[ReplyPart], ReadReply]:
        """See `ReplyReader.end`."""
        return self._parts(ends=True), ReadReply(text=self._decode(self._tokens))

    def _parts(self, *, ends: bool) -> Sequence[ReplyPart]:
        known = self._decode(self._tokens[self._begin : self._read])
        now = self._decode(self._tokens[self._begin :])
        if len(now) <= len(known) or (now.endswith("\ufffd") and not ends):
            return ()
        self._begin, self._read = self._read, len(self._tokens)
        return (ReplyPart(text=now[len(known) :]),)


class ReplyWatch:
    """Reads one choice: hands on its pieces, and has it whole at the end."""

    def __init__(
        self,
        reader: ReplyReader,
        *,
        stop: Sequence[str],
        on_part: Callable[[ReplyPart], None] | None,
    ) -> None:
        """A watch over one reply.

        Args:
            reader: Of its tokens.
            stop: Words of which the first is the end of the text; the tokens may go on with it.
            on_part: Called with each piece; None where nobody reads along.
        """
        self._reader = reader
        self._stop = tuple(word for word in stop if word)
        self._on_part = on_part
        self._held = ""
        self._stopped = False
        self._num_tokens = 0
        self._whole: ReadReply | None = None
        self._stop_word: str | None = None

    def feed(self, tokens: Sequence[int]) -> None:
        """These tokens were written."""
        self._num_tokens += len(tokens)
        for part in self._reader.feed(tokens):
            self._hand_on(part)

    def read(self, completion: Completion) -> ReadReply:
        """All tokens were written; what the program reads of them, up to a stop word."""
        rest = completion.action_tokens[self._num_tokens :]
        if rest:
            self.feed(rest)
        parts, whole = self._reader.end()
        for part in parts:
            self._hand_on(part)
        self._release()
        text, self._stop_word = self._before_stop(whole.text)
        self._whole = replace(whole, text=text)
        return self._whole

    def choice(self, call: Call) -> Choice:
        """The reply as a program gets it."""
        assert self._whole is not None, "the reply was not read"
        assert call.sampled is not None, "the policy's calls have their tokens"
        finish = call.finish_reason
        if self._whole.tool_calls and finish is FinishReason.STOP:
            finish = FinishReason.TOOL_CALLS
        return Choice(
            text=self._whole.text,
            reasoning=self._whole.reasoning,
            tool_calls=self._whole.tool_calls,
            finish_reason=finish,
            stop_word=self._stop_word,
            tokens=call.sampled.action_tokens,
            logprobs=call.sampled.behavior_logprobs or (),
        )

    def _hand_on(self, part: ReplyPart) -> None:
        if self._on_part is None:
            return
        if not self._stop or not part.text:
            self._release()
            self._pass(part)
            return
        if self._stopped:
            return
        text = self._held + part.text
        shown, word = self._before_stop(text)
        self._stopped = word is not None
        if word is None:
            shown = text[: len(text) - self._begun_word(text)]
        self._held = text[len(shown) :]
        if shown:
            self._pass(ReplyPart(text=shown))

    def _release(self) -> None:
        """Hand on what was held back: what follows makes no stop word of it."""
        if self._held and not self._stopped:
            self._pass(ReplyPart(text=self._held))
            self._held = ""

    def _pass(self, part: ReplyPart) -> None:
        if self._on_part is not None:
            self._on_part(part)

    def _before_stop(self, text: str) -> tuple[str, str | None]:
        places = [(text.find(word), word) for word in self._stop if word in text]
        place, word = min(places, default=(len(text), None))
        return text[:place], word

    def _begun_word(self, text: str) -> int:
        """How many characters at the end may be the beginning of a stop word."""
        return max(
            (
                length
                for word in self._stop
                for length in range(1, min(len(word) - 1, len(text)) + 1)
                if text.endswith(word[:length])
            ),
            default=0,
        )
