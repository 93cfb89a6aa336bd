"""Which exchanges a memory that recalls by words shows again."""

import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.memory import PromptTemplate, RecallMemory
from longhaul_core.memory.recall import bm25_scores
from longhaul_core.types import Observation
from memories import taken_in

TEMPLATE = PromptTemplate(system="You walk.")
WORDS = st.lists(st.sampled_from("abcde"), max_size=6)


def after(*seen: str, size: int = 1, max_earlier: int = 1) -> RecallMemory:
    memory = RecallMemory(size=size, max_earlier=max_earlier, template=TEMPLATE)
    for number, text in enumerate(seen):
        taken_in(memory, Observation(text=text), action=f"do {number}")
    return memory


def shown(memory: RecallMemory, now: str, *, drop: int = 0) -> str:
    return memory.compose(Observation(text=now), drop=drop)[-1].text


def test_scores_are_those_worked_out_by_hand() -> None:
    # N = 3; "key" is in 1, "door" in 2: ln(1 + 2.5/1.5) = 0.98083, ln(1 + 1.5/2.5) = 0.47000.
    # Lengths 2, 4, 3, 3 in the mean. "red" is in none, and "key" counts once.
    records = [
        Counter({"key": 1, "door": 1}),
        Counter({"door": 2, "wall": 2}),
        Counter({"wall": 3}),
    ]
    found = bm25_scores(["key", "red", "door", "key"], records)
    # f = 1, L/L̄ = 2/3: 2.2 / (1 + 1.2 · 0.75) = 1.15789; f = 2, L/L̄ = 4/3: 4.4 / (2 + 1.2 · 1.25).
    assert found == pytest.approx([1.15789 * (0.98083 + 0.47000), 1.25714 * 0.47000, 0.0], abs=1e-4)


def test_what_shares_rare_words_with_the_observation_is_shown_in_the_order_it_was_played() -> None:
    seen = ["A red door.", "A hall.", "A brass key.", "A hall.", "A hall."]
    memory = after(*seen, max_earlier=2)
    assert shown(memory, "The door wants a KEY.") == (
        "Earlier:\nA red door.\n> do 0\nA brass key.\n> do 2\nPast:\nA hall.\n> do 4\n"
        "Now:\nThe door wants a KEY."
    )
    assert shown(memory, "The door wants a KEY.", drop=1).startswith("Earlier:\nA brass key.\n")
    assert shown(memory, "The door wants a KEY.", drop=2).startswith("Past:\nA hall.\n> do 4\n")


def test_of_equal_records_the_newer_is_shown() -> None:
    seen = ["sea", "sea", "hall", "end"]
    assert shown(after(*seen), "sea").startswith("Earlier:\nsea\n> do 1\n")
    assert shown(after(*seen), "nothing of it").startswith("Earlier:\nhall\n> do 2\n")


@given(query=WORDS, texts=st.lists(WORDS, max_size=6))
def test_scores_agree_with_the_formula(query: list[str], texts: list[list[str]]) -> None:
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0

    def naive(text: list[str]) -> float:
        score = 0.0
        for word in set(query) & set(text):
            having = sum(word in other for other in texts)
            idf = math.log((len(texts) + 1) / (having + 0.5))
            times = text.count(word)
            score += idf * times * 2.2 / (times + 0.3 + 0.9 * len(text) / mean)
        return score

    found = bm25_scores(query, [Counter(text) for text in texts])
    assert found == pytest.approx([naive(text) for text in texts])
    assert all(score >= 0 for score in found)


@given(
    seen=st.lists(st.text("abc ", max_size=5), max_size=9),
    now=st.text("abc ", min_size=1, max_size=5),
    size=st.integers(1, 3),
    max_earlier=st.integers(1, 3),
)
def test_no_other_choice_has_a_higher_score(
    seen: list[str], now: str, size: int, max_earlier: int
) -> None:
    memory = after(*seen, size=size, max_earlier=max_earlier)
    before = range(max(0, len(seen) - size))
    scores = bm25_scores(
        now.split(), [Counter([*seen[place].split(), "do", str(place)]) for place in before]
    )
    text = shown(memory, now)
    chosen = [place for place in before if f"> do {place}\n" in text]

    assert len(chosen) == min(max_earlier, len(before))
    best = max(
        (sum(scores[place] for place in some) for some in combinations(before, len(chosen))),
        default=0.0,
    )
    assert sum(scores[place] for place in chosen) == pytest.approx(best)
    assert memory.num_remembered == len(chosen) + min(size, len(seen))
