"""How answers and addresses are compared; each case follows from the authors' code."""

import pytest

from longhaul_envs.webarena.scoring import answer_matches, includes, url_matches


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
    ("reference", "answer", "as_word", "included"),
    [
        ("Lamp", "two lamps", True, True),
        ("0", "10", False, True),
        ("0", "10", True, False),
        ("0", "It is 0.", True, True),
        ("0", "(0)", True, True),
        ("$", "$ 5", True, True),
        ("lamp", "", False, False),
    ],
)
def test_an_answer_includes_a_phrase_and_a_lone_character_as_a_word(
    reference: str, answer: str, as_word: bool, included: bool
) -> None:
    assert includes(reference, answer, as_word=as_word) is included
