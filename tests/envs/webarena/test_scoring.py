"""How answers and addresses are compared; each case follows from the authors' code."""

import asyncio
from typing import Any

import pytest

from longhaul_envs.browser.fence import Fence
from longhaul_envs.webarena.schema import Evaluation, ReferenceAnswers, WebArenaTask
from longhaul_envs.webarena.scoring import Scorer, answer_matches, includes, url_matches


@pytest.mark.parametrize(
    ("reference", "url", "matches"),
    [
        ("http://a.test/f/books", "http://a.test/f/books/", True),
        ("http://a.test/f/books", "http://a.test/f/books/1/x", True),
        ("http://a.test/f/books/", "http://a.test/f", False),
        ("http://b.test/f", "http://a.test/f", False),
        ("http://a.test/x |OR| http://a.test/y", "http://a.test/y", True),
        ("http://a.test/s?q=ink", "http://a.test/s?q=ink&page=2", True),
        ("http://a.test/s?q=ink", "http://a.test/s?q=oil", False),
        ("http://a.test/s?q=ink", "http://a.test/s", False),
        ("http://a.test/s?q=a |OR| http://a.test/s?q=b", "http://a.test/s?q=b", True),
        ("http://a.test/s?q=a&p=1", "http://a.test/s?q=a", False),
    ],
)
def test_an_address_matches_if_it_holds_a_reference_and_its_query(
    reference: str, url: str, matches: bool
) -> None:
    assert url_matches(reference, url) is matches


def test_answers_are_equal_but_for_quotes_spaces_and_case() -> None:
    assert answer_matches("Lamp", " 'lamp' ")
    assert answer_matches("'Lamp'", "lamp")
    assert not answer_matches("Lamp", "a lamp")


@pytest.mark.parametrize(
    ("answer", "score"), [("'\"5\"'", 1.0), ('""5""', 1.0), ('"\'"5"\'"', 0.0), ("55", 0.0)]
)
def test_two_pairs_of_quotes_around_an_answer_are_none_of_it(answer: str, score: float) -> None:
    """The authors clean an answer, and what they compare it with, before they clean both again."""
    task = WebArenaTask(
        task_id=1,
        sites=(),
        intent="",
        start_url="",
        eval=Evaluation(
            eval_types=("string_match",), reference_answers=ReferenceAnswers(exact_match="5")
        ),
    )
    scorer = Scorer(fence=Fence(), shopping="", admin=("", ""), judge=None)
    no_page: Any = None  # of which an answer's score asks nothing
    assert asyncio.run(scorer.score(task, answer=answer, page=no_page)) == score


@pytest.mark.parametrize(
    ("reference", "answer", "as_word", "included"),
    [
        ("Lamp", "two lamps", True, True),
        ("0", "10", False, True),
        ("0", "10", True, False),
        ("0", "It is 0.", True, True),
        ("0", "(0)", True, True),
        ("$", "$ 5", True, True),
        ("$", "$5", True, True),
        ("5", "$5", True, True),
        ("5", "5-star", True, False),
        ("5", "-5", True, False),
        ("5", "5/10", True, False),
        ("5", "5,000", True, False),
        ("5", "5, 6 and 7", True, True),
        ("5", 'they say "5".', True, True),
        ("5", "5's place", True, True),
        ("5", "5 stars, 4.5", True, True),
        ("5", "4.5", True, False),
        ("5", "5'6", True, False),
        ("lamp", "", False, False),
    ],
)
def test_an_answer_includes_a_phrase_and_a_lone_character_as_a_word(
    reference: str, answer: str, as_word: bool, included: bool
) -> None:
    """As a word: whether it is among what NLTK 3.10.4's `NLTKWordTokenizer` makes of the answer."""
    assert includes(reference, answer, as_word=as_word) is included
