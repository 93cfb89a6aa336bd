"""The action of a reply, and whether it was well-formed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.actions import ActionFormat, ActionParser, ParsedAction, default_instruction

TAGS = ActionParser(format=ActionFormat.TAGS)
JSON = ActionParser(format=ActionFormat.JSON)
PLAIN = ActionParser(format=ActionFormat.PLAIN)


def valid(text: str) -> ParsedAction:
    return ParsedAction(text=text, valid=True)


@pytest.mark.parametrize(
    ("parser", "reply"),
    [
        (TAGS, "<action>go north</action>"),
        (TAGS, "I will.\n<action>\n go north </action> Then more. <action>stay</action>"),
        (TAGS, "<think><action>stay</action></think><action>go north</action>"),
        (JSON, '{"action": "go north"}'),
        (JSON, 'Sure: {"thought": "hm {", "action": " go north "} and so on {'),
        (JSON, '```json\n{"action": "go north"}\n```'),
        (JSON, '<think>{"action": "stay"}</think>{"action": "go north"}'),
        (PLAIN, "go north"),
        (PLAIN, "\n\n  go north \nand then stay"),
        (PLAIN, "<think>stay\nor not</think>\ngo north"),
    ],
)
def test_an_action_in_the_asked_for_form_is_found(parser: ActionParser, reply: str) -> None:
    assert parser.parse(reply) == valid("go north")


@pytest.mark.parametrize(
    ("parser", "reply", "text", "reason"),
    [
        (TAGS, " go north ", "go north", "no <action>"),
        (TAGS, "<action>go nor", "go nor", "never closed"),
        (TAGS, "<action><action>go</action>", "go", "opened twice"),
        (TAGS, "<action> </action>", "", "empty"),
        (TAGS, "<think>still <action>go</action>", "", "no <action>"),
        (TAGS, "", "", "no <action>"),
        (JSON, "go north", "go north", "no JSON object"),
        (JSON, '{"action": "go', '{"action": "go', "no JSON object"),
        (JSON, '{"act": "go"}', '{"act": "go"}', 'no text under "action"'),
        (JSON, '{"action": 3}', '{"action": 3}', 'no text under "action"'),
        (JSON, '{"action": ""}', "", "empty"),
        (PLAIN, " \n ", "", "empty"),
    ],
)
def test_a_reply_that_breaks_the_form_still_gives_its_text(
    parser: ActionParser, reply: str, text: str, reason: str
) -> None:
    parsed = parser.parse(reply)
    assert (parsed.text, parsed.valid) == (text, False)
    assert reason in parsed.reason


def test_thinking_can_be_required() -> None:
    strict = ActionParser(format=ActionFormat.TAGS, require_thinking=True)
    assert strict.parse("<think>hm</think><action>go</action>") == valid("go")
    for reply in ("<action>go</action>", "<think> </think><action>go</action>"):
        refused = strict.parse(reply)
        assert (refused.text, refused.valid) == ("go", False)
        assert "<think>" in refused.reason


def test_what_the_prompt_wrote_of_the_reply_belongs_to_it() -> None:
    parser = ActionParser(format=ActionFormat.TAGS, reply_prefix="<action>")
    assert parser.parse("go north</action>") == valid("go north")
    thinking = ActionParser(format=ActionFormat.TAGS, reply_prefix="<think>", require_thinking=True)
    assert thinking.parse("hm</think><action>go</action>") == valid("go")


def test_an_admissible_action_is_given_in_its_own_spelling() -> None:
    admissible = ("Go North", "craft 1 stick using 2 planks")
    assert PLAIN.parse("  go   NORTH ", admissible) == valid("Go North")
    assert PLAIN.parse("craft 1 stick using 2 planks", admissible) == valid(admissible[1])


def test_the_exact_spelling_wins_over_one_that_differs_in_case() -> None:
    assert PLAIN.parse("b", ("B", "b")) == valid("b")


def test_an_action_that_is_not_admissible_is_passed_on_as_it_is() -> None:
    parsed = PLAIN.parse("fly", ("go", "stay"))
    assert (parsed.text, parsed.valid) == ("fly", False)
    assert "2 admissible" in parsed.reason
    assert not PLAIN.parse("go", ()).valid


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@given(reply=st.text() | st.text(alphabet='<>/action{}"think\\: \n'))
def test_no_reply_breaks_the_parser(parser: ActionParser, reply: str) -> None:
    parsed = parser.parse(reply)
    assert parsed.valid == (not parsed.reason)
    assert parsed.text == parsed.text.strip()
    assert not (parsed.valid and not parsed.text)


@given(action=st.text(min_size=1).filter(lambda text: text.strip() and "<" not in text))
def test_tags_give_back_any_action_written_in_them(action: str) -> None:
    assert TAGS.parse(f"<action>{action}</action>") == valid(action.strip())


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@pytest.mark.parametrize(
    "piece",
    ["<action>", "</action>", "<think>", "</think>", "{", '{"a":', "[", '{"action":"', " ", "\n"],
)
def test_time_is_linear_in_the_reply_whatever_it_repeats(parser: ActionParser, piece: str) -> None:
    def seconds(num_pieces: int) -> float:
        start = time.perf_counter()
        parser.parse("{" + piece * num_pieces)
        parser.parse(piece * num_pieces)
        return time.perf_counter() - start

    assert min(seconds(100_000) for _ in range(3)) < 0.5


@pytest.mark.parametrize("action_format", list(ActionFormat))
@pytest.mark.parametrize("require_thinking", [False, True])
def test_the_instruction_shows_the_form_that_the_parser_accepts(
    action_format: ActionFormat, require_thinking: bool
) -> None:
    instruction = default_instruction(action_format, require_thinking=require_thinking)
    assert "\n" not in instruction
    assert ("<think>" in instruction) == require_thinking
    if action_format is not ActionFormat.PLAIN:
        shown = instruction.replace("Think inside <think>…</think>, then write", "")
        parser = ActionParser(format=action_format)
        assert parser.parse(shown) == valid("your action")


def test_a_plain_action_follows_its_lead_in_and_ends_before_the_full_stop() -> None:
    parser = ActionParser(format=ActionFormat.PLAIN, reply_prefix="The next action is to")

    parsed = parser.parse(" go to red box 1.\nBecause it is near.", ["go to red box 1"])

    assert parsed == ParsedAction(text="go to red box 1", valid=True)


def test_articles_are_not_compared_with_the_admissible_actions() -> None:
    parsed = ActionParser(format=ActionFormat.PLAIN).parse(
        "Go to the red box 1", ["go to red box 1"]
    )

    assert parsed == ParsedAction(text="go to red box 1", valid=True)
