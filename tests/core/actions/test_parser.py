"""The action of a reply, and whether it was well-formed."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.actions import (
    MAX_ACTION_CHARACTERS,
    ActionFormat,
    ActionParser,
    ParsedAction,
    default_instruction,
)

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
        (JSON, 'Some {braces} and {"action": "go north"}'),
        (JSON, '{"plan": {"action": "stay"}}\n{"action": "go north"}\n{"action": "stay"}'),
        (JSON, '{"action": 3} {} { {"action": "go north"}'),
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
        (JSON, '{"x": [{"action": "go"}]', '{"x": [{"action": "go"}]', "no JSON object"),
        (JSON, "{" * 64 + '{"action": "go"}', "{" * 64 + '{"action": "go"}', "no JSON object"),
        (JSON, '{"act": "go"}', '{"act": "go"}', 'a text under "action"'),
        (JSON, '{"action": 3}', '{"action": 3}', 'a text under "action"'),
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


def written(parser: ActionParser, action: str) -> str:
    """`action` in the form that `parser` reads, on a line of its own."""
    match parser.format:
        case ActionFormat.TAGS:
            return f"\n<action>{action}</action>\n"
        case ActionFormat.JSON:
            return f'\n{{"action": "{action}"}}\n'
        case ActionFormat.PLAIN:
            return f"\n{action}\n"
        case ActionFormat.REACT:
            return f"\nAction:\n{action}\n"
        case ActionFormat.TOOL_CALL:
            return f"\n{action}\n"


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@pytest.mark.parametrize(
    "thoughts",
    [
        "Sure. <think>I could LOOK</think>",
        "I could LOOK</think>",  # the chat template opened it
        "<think>LOOK</think> so <think>or LOOK</think>",
        "<think>LOOK <think>LOOK</think> LOOK</think>",
        "LOOK <think>LOOK</think>",
        "<think>LOOK</think>LOOK</think>",
    ],
)
def test_an_action_that_is_only_thought_about_is_not_taken(
    parser: ActionParser, thoughts: str
) -> None:
    reply = thoughts.replace("LOOK", written(parser, "look"))
    assert parser.parse(reply + written(parser, "go north")) == valid("go north")


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@pytest.mark.parametrize(
    "reply",
    [
        "<think>LOOK",
        "Sure. <think>LOOK",
        "LOOK <think>or",
        "<think>LOOK</think>",
        "LOOK</think>",
        "<think>hm</think> LOOK <think>LOOK",
    ],
)
def test_a_reply_that_ends_with_a_thought_does_nothing(parser: ActionParser, reply: str) -> None:
    parsed = parser.parse(reply.replace("LOOK", written(parser, "look")))
    assert (parsed.text, parsed.valid) == ("", False)


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
def test_a_thought_that_the_prompt_began_and_a_limit_cut_does_nothing(parser: ActionParser) -> None:
    begun = replace(parser, reply_prefix="<think>")
    cut = begun.parse(f"I could {written(parser, 'look')} or")
    assert (cut.text, cut.valid) == ("", False)
    assert begun.parse(f"hm</think>{written(parser, 'go')}") == valid("go")


THOUGHT = "q"
"""What the replies below hold inside thoughts and nowhere else."""
SIZES = st.integers(0, 4)


@st.composite
def replies_with_thoughts(draw: st.DrawFn) -> str:
    """A reply of thoughts, whole ones, nested ones and one without an end, and of other text."""
    parsers = st.sampled_from([TAGS, JSON, PLAIN])
    other = st.text(alphabet='<>/action{}":. \n') | parsers.map(lambda one: written(one, "go"))
    inside = st.text(alphabet='q<>/action{}": \n') | parsers.map(lambda one: written(one, "q"))

    def thought(depth: int) -> str:
        parts = draw(st.lists(inside, max_size=3))
        if depth and draw(st.booleans()):
            parts.insert(draw(st.integers(0, len(parts))), thought(depth - 1))
        return f"<think>{''.join(parts)}</think>"

    begun_by_the_prompt = f"{draw(inside)}</think>" if draw(st.booleans()) else ""
    parts = [draw(other) if draw(st.booleans()) else thought(2) for _ in range(draw(SIZES))]
    endless = f"<think>{draw(inside)}" if draw(st.booleans()) else ""
    return begun_by_the_prompt + "".join(parts) + endless


@pytest.mark.parametrize("require_thinking", [False, True])
@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@given(reply=replies_with_thoughts())
def test_nothing_inside_a_thought_is_ever_acted_on(
    parser: ActionParser, require_thinking: bool, reply: str
) -> None:
    assert THOUGHT not in replace(parser, require_thinking=require_thinking).parse(reply).text


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@given(thought=st.text(), action=st.sampled_from(["go north", "stay"]))
def test_what_follows_the_last_thought_is_acted_on(
    parser: ActionParser, thought: str, action: str
) -> None:
    assert parser.parse(f"{thought}</think>{written(parser, action)}") == valid(action)


def test_thinking_can_be_required() -> None:
    strict = ActionParser(format=ActionFormat.TAGS, require_thinking=True)
    assert strict.parse("<think>hm</think><action>go</action>") == valid("go")
    assert strict.parse("hm</think><action>go</action>") == valid("go")
    for reply in (
        "<action>go</action>",
        "<think> </think><action>go</action>",
        "Sure. <think></think><action>go</action>",
        " </think><action>go</action>",
    ):
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


@pytest.mark.parametrize(
    ("reply", "admissible", "meant"),
    [
        ("answer a", ("answer b", "answer a"), "answer a"),
        ("answer the a", ("answer b", "answer a"), "answer a"),
        ("Take THE  a", ("take a", "take the a"), "take the a"),
        ("say hello.", ("say hello.", "say hello"), "say hello."),
        ("say hello.", ("say hello",), "say hello"),
        ("Say Hello.", ("say hello.",), "say hello."),
        ("go to a red box", ("go to the red box", "go to a red box"), "go to a red box"),
        ("the", ("a", "the"), "the"),
    ],
)
def test_of_several_admissible_actions_the_nearest_spelling_is_taken(
    reply: str, admissible: tuple[str, ...], meant: str
) -> None:
    assert PLAIN.parse(reply, admissible) == valid(meant)


@pytest.mark.parametrize(
    ("reply", "admissible"),
    [
        ("answer", ("answer a",)),
        ("answer a", ("answer",)),
        ("the", ("a",)),
        ("a", ("the answer",)),
        ("move 3", ("move a 3", "move b 3")),
        ("go to an red box", ("go to the red box", "go to a red box")),
        ("press the a", ("press",)),
        ("press a", ("press the a", "press the b")),
    ],
)
def test_dropping_articles_makes_no_action_into_another_one(
    reply: str, admissible: tuple[str, ...]
) -> None:
    parsed = PLAIN.parse(reply, admissible)
    assert (parsed.text, parsed.valid) == (reply, False)


def test_a_spelling_of_two_admissible_actions_is_neither() -> None:
    parsed = PLAIN.parse("go", ("Go", "GO", "stay"))
    assert (parsed.text, parsed.valid) == ("go", False)
    assert "any of the 2" in parsed.reason


WORDS = st.lists(st.sampled_from(["a", "an", "the", "A", "go", "b", "1"]), min_size=1, max_size=5)


@given(reply=WORDS, admissible=st.lists(WORDS, min_size=1, max_size=4))
def test_an_admissible_action_is_matched_by_itself_and_by_more_articles_alone(
    reply: list[str], admissible: list[list[str]]
) -> None:
    listed = [" ".join(words) for words in admissible]
    for action in listed:
        assert PLAIN.parse(action, listed) == valid(action)
    parsed = PLAIN.parse(" ".join(reply), listed)
    if parsed.valid:
        taken, wrote = parsed.text.lower().split(), " ".join(reply).lower().split()
        assert taken[-1] == wrote[-1]
        rest = iter(wrote)
        assert all(word in rest for word in taken)  # in this order
        assert all(taken.count(word) == wrote.count(word) for word in ("go", "b", "1"))


def test_an_action_that_is_not_admissible_is_passed_on_as_it_is() -> None:
    parsed = PLAIN.parse("fly", ("go", "stay"))
    assert (parsed.text, parsed.valid) == ("fly", False)
    assert "2 admissible" in parsed.reason
    assert not PLAIN.parse("go", ()).valid


@pytest.mark.parametrize(
    ("reply", "text", "reason"),
    [
        ('{"action": "wave \\ud83d"}', "wave \ufffd", "surrogate"),
        ('{"action": "look", "action": "go"}', '{"action": "look", "action": "go"}', "2 times"),
        ('{"a":' * 100_000, None, "recursion"),
        ('{"a": "' * 100_000, None, "no JSON object"),
    ],
)
def test_json_that_names_no_single_text_is_refused(
    reply: str, text: str | None, reason: str
) -> None:
    parsed = JSON.parse(reply)
    assert (parsed.text, parsed.valid) == (reply if text is None else text, False)
    assert reason in parsed.reason


@pytest.mark.parametrize(
    "other",
    ["NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud83d"', '{"action": "stay", "action": 1}'],
)
def test_what_stands_beside_the_action_of_a_json_object_does_not_matter(other: str) -> None:
    assert JSON.parse(f'{{"other": {other}, "action": "go"}}') == valid("go")


def test_a_nul_is_passed_on() -> None:
    assert JSON.parse('{"action": "go\\u0000north"}') == valid("go\x00north")


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
def test_an_action_that_is_too_long_is_cut_and_invalid(parser: ActionParser) -> None:
    longest = "x" * MAX_ACTION_CHARACTERS
    assert parser.parse(written(parser, longest)) == valid(longest)
    parsed = parser.parse(written(parser, longest * 10 + "y"))
    assert (parsed.text, parsed.valid) == (longest, False)
    assert f"{10 * MAX_ACTION_CHARACTERS + 1} characters exceeds" in parsed.reason


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@given(
    reply=st.text()
    | st.text(alphabet='<>/action{}"think\\: \n')
    | st.text(alphabet=st.characters(categories=["Cs", "Ll"]))
)
def test_no_reply_breaks_the_parser(parser: ActionParser, reply: str) -> None:
    parsed = parser.parse(reply)
    parsed.text.encode()
    assert parsed.valid == (not parsed.reason)
    assert parsed.text == parsed.text.strip()
    assert not (parsed.valid and not parsed.text)


@given(action=st.text(min_size=1).filter(lambda text: text.strip() and "<" not in text))
def test_tags_give_back_any_action_written_in_them(action: str) -> None:
    assert TAGS.parse(f"<action>{action}</action>") == valid(action.strip())


@pytest.mark.parametrize("parser", [TAGS, JSON, PLAIN])
@pytest.mark.parametrize(
    "piece",
    [
        *("<action>", "</action>", "<think>", "</think>", "<think></think>", "</think><think>"),
        *("{", '{"a":', "[", '{"action":"', '"action":1,', " ", "\n", "a ", "9"),
    ],
)
def test_time_is_linear_in_the_reply_whatever_it_repeats(parser: ActionParser, piece: str) -> None:
    def seconds(num_pieces: int) -> float:
        start = time.thread_time()  # others may use the processor as well
        parser.parse("{" + piece * num_pieces)
        parser.parse(piece * num_pieces, ("a " * 50, "a b"))
        return time.thread_time() - start

    assert min(seconds(100_000) for _ in range(3)) < 0.5


@pytest.mark.parametrize("action_format", list(ActionFormat))
@pytest.mark.parametrize("require_thinking", [False, True])
def test_the_instruction_shows_the_form_that_the_parser_accepts(
    action_format: ActionFormat, require_thinking: bool
) -> None:
    instruction = default_instruction(action_format, require_thinking=require_thinking)
    assert "\n" not in instruction
    thought = "Thought:" if action_format is ActionFormat.REACT else "<think>"
    assert (thought in instruction) == require_thinking
    if action_format not in (ActionFormat.PLAIN, ActionFormat.TOOL_CALL):
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


def test_a_react_reply_has_one_action_line_after_its_thought() -> None:
    parser = ActionParser(format=ActionFormat.REACT, require_thinking=True)
    thought = "Thought:\nI need a log.\n\n"

    assert parser.parse(f"{thought}Action:\n\nget 1 log\nand more") == valid("get 1 log")
    assert parser.parse("<think>A log.</think>Action: get 1 log") == valid("get 1 log")
    assert parser.parse("Thought: \nAction:\nget 1 log").reason == "no Thought: before the action"
    for several in ("get 1 log", f"{thought}Action: a\nAction: b", f"{thought}Action:\n "):
        assert not parser.parse(several).valid
