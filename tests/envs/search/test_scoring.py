"""Answers compared as SQuAD and Search-R1 compare them, worked by hand."""

import pytest

from longhaul_envs.search.scoring import contains_answer, exact_match, f1, normalised


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The  Analytical-Engine!", "analyticalengine"),
        ("A man, an apple and the sea.", "man apple and sea"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("  ", ""),
        ("\u6f22 \u2019 \u00c9t\u00e9", "\u6f22 \u2019 \u00e9t\u00e9"),
    ],
)
def test_case_articles_and_punctuation_do_not_count(text: str, left: str) -> None:
    assert normalised(text) == left


def test_an_answer_matches_any_right_one_and_nothing_matches_nothing() -> None:
    assert exact_match("the Charles Babbage.", ["Ada", "charles babbage"])
    assert not exact_match("Babbage", ["charles babbage"])
    assert not exact_match(" ", ["", "the"])


@pytest.mark.parametrize(("answer", "right"), [("A", "A"), ("the", "The"), ("$", "$"), ("an", "a")])
def test_an_answer_of_which_nothing_is_left_can_be_right(answer: str, right: str) -> None:
    assert exact_match(answer, ["Ada", right])
    assert f1(answer, ["Ada", right]) == 1.0
    assert not exact_match(answer, ["Ada"])


@pytest.mark.parametrize(
    ("answer", "right", "value"),
    [
        ("charles babbage", ["Charles Babbage"], 1.0),
        ("babbage", ["Charles Babbage"], 2 / 3),
        ("london london", ["London"], 2 / 3),  # a word counts as often as both have it
        ("paris", ["London"], 0.0),
        ("babbage", ["Ada Lovelace", "C Babbage", "Charles B Babbage"], 2 / 3),
        ("", [""], 0.0),
    ],
)
def test_f1_is_of_shared_words_with_the_closest_right_answer(
    answer: str, right: list[str], value: float
) -> None:
    assert f1(answer, right) == pytest.approx(value)


def test_an_answer_is_contained_as_whole_words() -> None:
    assert contains_answer("It is a member of the Family Felidae.", ["family felidae"])
    assert not contains_answer("concatenate", ["cat"])
