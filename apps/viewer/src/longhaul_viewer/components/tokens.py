"""Coloured token views: which text each token wrote, and how likely it was.

A token is a piece of *bytes*, not of text: one character may be split over several
tokens. Tokens are therefore joined into spans that decode on their own, and a span of
several tokens takes the colour of its most surprising one and names them all in its
tooltip. All text is escaped here; nothing that a model wrote reaches the page as markup.
"""

import codecs
import math
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["DRIFT", "PROBABILITY", "Scale", "Span", "Token", "join_tokens", "legend", "token_view"]

ZERO_WIDTH_JOINER = "\u200d"


class Token(NamedTuple):
    """One token, with what the store knows of it."""

    token_id: int
    piece: bytes | None
    """The bytes it stands for; None if the run's vocabulary does not hold it."""
    value: float | None = None
    """What it is coloured by, e.g. its logprob; None for a token nobody scored."""


class Span(NamedTuple):
    """The shortest run of tokens that decodes to whole characters."""

    text: str
    tokens: tuple[Token, ...]


class Scale(NamedTuple):
    """Colour classes over the values of a token, from low to high."""

    title: str
    css_class: str
    thresholds: tuple[float, ...]
    """Ascending; class `i` holds the values below `thresholds[i]`."""
    labels: tuple[str, ...]
    """One per class, hence one more than thresholds."""
    worst_is_largest: bool = False
    """True if the value farthest from 0 should colour a joined span, else the lowest."""

    def level(self, value: float) -> int:
        """Index of the class that `value` falls in."""
        return sum(value >= threshold for threshold in self.thresholds)


PROBABILITY = Scale(
    title="Probability of the token when it was sampled",
    css_class="p",
    thresholds=tuple(math.log(p) for p in (0.01, 0.05, 0.2, 0.5, 0.9)),
    labels=("below 1 %", "1–5 %", "5–20 %", "20–50 %", "50–90 %", "90 % and more"),
)
DRIFT = Scale(
    title="Learner's logprob minus sampler's",
    css_class="d",
    thresholds=(-0.2, -0.05, -0.01, 0.01, 0.05, 0.2),
    labels=(
        "below −0.2",
        "−0.2 to −0.05",
        "−0.05 to −0.01",
        "within 0.01",
        "0.01 to 0.05",
        "0.05 to 0.2",
        "above 0.2",
    ),
    worst_is_largest=True,
)


def join_tokens(tokens: Iterable[Token]) -> list[Span]:
    r"""Spans of whole characters, in order; every token is in exactly one of them.

    Bytes that are no UTF-8 appear as `\xNN`, an unknown token as `⟨id⟩`. A combining
    mark, or an emoji joined to the one before it, stays with what it modifies, because a
    browser would otherwise draw the two apart.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    spans: list[Span] = []
    text, members = "", list[Token]()
    for token in tokens:
        if token.piece is None:
            text += decoder.decode(b"", final=True)
            decoder.reset()
            if members:
                spans.append(Span(text, tuple(members)))
            spans.append(Span(f"⟨{token.token_id}⟩", (token,)))
            text, members = "", []
            continue
        text += decoder.decode(token.piece)
        members.append(token)
        undecoded, _ = decoder.getstate()
        if not undecoded:
            _append(spans, Span(text, tuple(members)))
            text, members = "", []
    if members:
        _append(spans, Span(text + decoder.decode(b"", final=True), tuple(members)))
    return spans


def token_view(tokens: Sequence[Token], scale: Scale) -> str:
    """HTML of the tokens, coloured by `scale`, with a tooltip on each span."""
    body = "".join(_span_html(span, scale) for span in join_tokens(tokens))
    return f'<div class="tokens" dir="auto">{body}</div>'


def legend(scale: Scale) -> str:
    """HTML that explains the colours of `scale`."""
    swatches = "".join(
        f'<span class="swatch {scale.css_class}{level}">{escape(label)}</span>'
        for level, label in enumerate(scale.labels)
    )
    return f'<div class="legend"><span>{escape(scale.title)}</span>{swatches}</div>'


def _append(spans: list[Span], span: Span) -> None:
    if spans and _continues(spans[-1].text, span.text):
        last = spans.pop()
        span = Span(last.text + span.text, last.tokens + span.tokens)
    spans.append(span)


def _continues(before: str, after: str) -> bool:
    """Whether `after` is drawn together with the end of `before`."""
    if not before or not after:
        return False
    return (
        before.endswith(ZERO_WIDTH_JOINER)
        or after.startswith(ZERO_WIDTH_JOINER)
        or unicodedata.category(after[0]).startswith("M")
        or 0x1F3FB <= ord(after[0]) <= 0x1F3FF  # skin tones
    )


def _span_html(span: Span, scale: Scale) -> str:
    values = [token.value for token in span.tokens if token.value is not None]
    css = "t"
    if values:
        worst = max(values, key=abs) if scale.worst_is_largest else min(values)
        css = f"t {scale.css_class}{scale.level(worst)}"
    if len(span.tokens) > 1:
        css += " joined"
    title = "\n".join(_tooltip(token, scale) for token in span.tokens)
    text = escape(span.text).replace("\n", '<span class="newline">↵</span>\n')
    return f'<span class="{css}" title="{escape(title)}">{text}</span>'


def _tooltip(token: Token, scale: Scale) -> str:
    shown = "not in the vocabulary" if token.piece is None else repr(token.piece)[1:]
    line = f"{shown}  ·  token {token.token_id}"
    if token.value is None:
        return line
    if scale is PROBABILITY:
        return f"{line}  ·  logprob {token.value:.4f}  ·  p {math.exp(token.value):.2%}"
    return f"{line}  ·  difference {token.value:+.4f}"
