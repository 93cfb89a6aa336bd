"""Token views: bytes become whole characters, every token is kept, text is never markup."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from longhaul_viewer.components.tokens import (
    DRIFT,
    PROBABILITY,
    Scale,
    Token,
    join_tokens,
    legend,
    token_view,
)


def tokens_of(*pieces: bytes) -> list[Token]:
    return [Token(number, piece, -0.5) for number, piece in enumerate(pieces)]


def texts(tokens: list[Token]) -> list[str]:
    return [span.text for span in join_tokens(tokens)]


def test_tokens_of_whole_characters_stay_apart() -> None:
    assert texts(tokens_of(b"get", b" 1", b" oak")) == ["get", " 1", " oak"]


def test_a_character_split_over_tokens_is_drawn_once_and_names_all_its_tokens() -> None:
    character = "木".encode()  # three bytes, here in three tokens
    spans = join_tokens(tokens_of(b"a", character[:1], character[1:2], character[2:], b"b"))
    assert [span.text for span in spans] == ["a", "木", "b"]
    assert [len(span.tokens) for span in spans] == [1, 3, 1]


def test_a_split_character_takes_the_colour_of_its_least_likely_token() -> None:
    character = "é".encode()
    likely, unlikely = math.log(0.99), math.log(0.001)
    html = token_view(
        [Token(1, character[:1], likely), Token(2, character[1:], unlikely)], PROBABILITY
    )
    assert 'class="t p0 joined"' in html
    assert "token 1 " in html
    assert "token 2 " in html


def test_a_cut_character_at_the_end_shows_its_bytes() -> None:
    assert texts(tokens_of(b"ok", "木".encode()[:2])) == ["ok", r"\xe6\x9c"]


def test_bytes_that_are_no_text_are_shown_not_dropped() -> None:
    assert "".join(texts(tokens_of(b"\xff", b"a"))) == r"\xffa"


def test_a_token_outside_the_vocabulary_is_shown_by_its_id() -> None:
    split = "木".encode()
    spans = join_tokens([Token(5, split[:1]), Token(99, None), Token(6, b"a")])
    assert [span.text for span in spans] == [r"\xe6", "⟨99⟩", "a"]


def test_marks_and_joined_emoji_stay_with_what_they_modify() -> None:
    assert texts(tokens_of(b"e", "\u0301".encode())) == ["e\u0301"]
    assert texts(tokens_of("👩".encode(), "\u200d".encode(), "🚀".encode())) == ["👩\u200d🚀"]
    assert texts(tokens_of("👍".encode(), "🏽".encode())) == ["👍🏽"]


def test_right_to_left_text_keeps_its_logical_order_and_lets_the_browser_turn_it() -> None:
    html = token_view(tokens_of("שלום".encode(), " עולם".encode()), PROBABILITY)
    assert html.index("שלום") < html.index("עולם")
    assert 'dir="auto"' in html


@given(st.text(), st.lists(st.integers(min_value=0, max_value=60)))
def test_any_cut_of_any_text_reads_as_the_text_and_keeps_every_token(
    text: str, cuts: list[int]
) -> None:
    data = text.encode("utf-8", errors="ignore")
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    tokens = tokens_of(*(data[a:b] for a, b in pairwise(edges)))
    spans = join_tokens(tokens)
    assert "".join(span.text for span in spans) == data.decode()
    assert [token for span in spans for token in span.tokens] == tokens


def test_markup_in_a_reply_is_text() -> None:
    html = token_view(tokens_of(b"<script>alert(1)</script>", b'" onmouseover="x'), PROBABILITY)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert '" onmouseover=' not in html


def test_classes_of_a_scale_meet_at_its_thresholds() -> None:
    assert PROBABILITY.level(math.log(0.009)) == 0
    assert PROBABILITY.level(math.log(0.05)) == 2
    assert PROBABILITY.level(0.0) == 5
    assert DRIFT.level(0.0) == 3
    assert DRIFT.level(-1.0) == 0
    assert DRIFT.level(1.0) == 6


def test_a_legend_has_one_swatch_for_each_class() -> None:
    scales: list[Scale] = [PROBABILITY, DRIFT]
    for scale in scales:
        assert len(scale.labels) == len(scale.thresholds) + 1
        assert legend(scale).count('class="swatch') == len(scale.labels)
