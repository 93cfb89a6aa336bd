"""Replies in the forms that published prompts ask for."""

import pytest

from longhaul_core.actions import Parser, build_parser


def parser(name: str, *, think: bool = False) -> Parser:
    return build_parser(f"longhaul_envs.published.replies:{name}", require_thinking=think)


def test_a_search_or_an_answer_is_read_with_its_tags() -> None:
    tags = parser("search_tags", think=True)
    searched = tags.parse("<think>Who <search>no</search>?</think> <search> a fish </search> so")
    answered = tags.parse("<think>Sure.</think><answer>Beijing</answer>")

    assert (searched.text, searched.valid) == ("<search>a fish</search>", True)
    assert (answered.text, answered.valid) == ("<answer>Beijing</answer>", True)
    assert not tags.parse("<search>a fish</search>").valid  # no thought


@pytest.mark.parametrize(
    "reply",
    [
        "nothing",
        "<search>never closed",
        "<search> </search>",
        "<search>a</search><search>b</search>",
        "<search>a</search><answer>b</answer>",
    ],
)
def test_no_search_and_several_are_invalid(reply: str) -> None:
    found = parser("search_tags").parse(reply)

    assert (found.valid, found.text) == (False, reply)
    assert "<search>your query</search>" in found.reason


def test_an_action_stands_in_the_first_fence() -> None:
    fence = parser("fenced")

    assert fence.parse("In summary, I will ```click [3]```. Not ```stop []```.").text == "click [3]"
    assert not fence.parse("click [3]").valid
    assert not fence.parse("``````").valid
