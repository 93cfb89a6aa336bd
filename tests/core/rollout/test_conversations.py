"""Tests for `longhaul_core.rollout.conversations`: what a prompt goes on from."""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import ByteChatRenderer
from longhaul_core.rollout.conversations import ChatPrompt, ConversationTree, Rewrite, Turn
from longhaul_core.rollout.packed_calls import PackedCall
from longhaul_core.types import (
    Call,
    Continuation,
    Message,
    Picture,
    SampledTokens,
    Tool,
    ToolCall,
)

RENDERER = ByteChatRenderer()
SEARCH = Tool(name="search", parameters='{"type": "object", "properties": {}}')
TOKENS = SampledTokens(
    prompt_tokens=(1,), action_tokens=(2,), behavior_logprobs=(-1.0,), policy_version=0
)


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str, *calls: ToolCall, reasoning: str = "") -> Message:
    return Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)


def tool(text: str, of: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=of)


@dataclass
class Episode:
    """A tree, and what a program does with it."""

    tree: ConversationTree

    def begin(self, *messages: Message, tools: tuple[Tool, ...] = (), trained: bool = True) -> Turn:
        return self.tree.begin(ChatPrompt(messages, tools), trained=trained, renderer=RENDERER)

    def end(self, turn: Turn, reply: Message | str) -> PackedCall:
        message = assistant(reply) if isinstance(reply, str) else reply
        prompt = turn.prompt
        shared = self.tree.shared(prompt) if isinstance(prompt, ChatPrompt) else ChatPrompt(())
        call = Call(
            messages=shared.messages,
            reply=message.text,
            sampled=TOKENS,
            tools=shared.tools,
            conversation=turn.conversation,
            continuation=turn.continuation,
            trained=turn.trained,
        )
        kept = PackedCall(call)
        self.tree.end(turn, kept, reply=message)
        return kept

    def call(
        self,
        *messages: Message,
        reply: Message | str,
        tools: tuple[Tool, ...] = (),
        trained: bool = True,
    ) -> tuple[Turn, PackedCall]:
        turn = self.begin(*messages, tools=tools, trained=trained)
        return turn, self.end(turn, reply)


@pytest.fixture
def episode() -> Episode:
    return Episode(ConversationTree())


ASKED = (system("Help."), user("Where is it?"))
THERE = "In the cellar, below the stairs."


def test_a_prompt_that_repeats_a_call_goes_on_from_it_in_its_conversation(
    episode: Episode,
) -> None:
    first, call = episode.call(*ASKED, reply="Where?")
    assert (first.continuation, first.conversation) == (Continuation.START, 0)
    assert (first.base, first.new_messages) == (None, ASKED)

    second, then = episode.call(*ASKED, assistant("Where?"), user("Here."), reply="I see.")
    assert (second.continuation, second.conversation) == (Continuation.EXACT, 0)
    assert (second.base, second.new_messages) == (call, (user("Here."),))

    third = episode.begin(
        *ASKED, assistant("Where?"), user("Here."), assistant("I see."), user("!")
    )
    assert (third.continuation, third.base) == (Continuation.EXACT, then)
    assert third.new_messages == (user("!"),)


def test_a_sub_agent_and_a_compacted_history_begin_conversations(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?")
    sub, _ = episode.call(system("Help."), user("Look in the cellar."), reply="Empty.")
    compacted = episode.begin(system("Help."), user("Before: it was not found."), user("Go on."))

    assert [sub.continuation, compacted.continuation] == [Continuation.START] * 2
    assert (sub.conversation, compacted.conversation) == (1, 2)


def test_equal_prompts_of_two_turns_are_two_calls(episode: Episode) -> None:
    first, call = episode.call(*ASKED, reply="Where?")
    again, other = episode.call(*ASKED, reply="Where?")

    assert (first.conversation, again.conversation) == (0, 1)
    assert again.continuation is Continuation.START
    assert other is not call
    # each of the two is gone on from once
    goes_on = [episode.begin(*ASKED, assistant("Where?"), user("Here.")) for _ in range(3)]
    assert [turn.continuation for turn in goes_on] == [
        Continuation.EXACT,
        Continuation.EXACT,
        Continuation.FORKED,
    ]
    assert [turn.conversation for turn in goes_on] == [1, 0, 2]


def test_of_two_calls_that_go_on_from_one_the_second_forks_with_its_tokens(
    episode: Episode,
) -> None:
    _, call = episode.call(*ASKED, reply="Where?")
    left = episode.begin(*ASKED, assistant("Where?"), user("Left."))
    right = episode.begin(*ASKED, assistant("Where?"), user("Right."))  # the first is in flight

    assert (left.continuation, right.continuation) == (Continuation.EXACT, Continuation.FORKED)
    assert (left.conversation, right.conversation) == (0, 1)
    assert right.base is call
    assert right.new_messages == (user("Right."),)

    fork = episode.end(right, "Right it is.")
    more = episode.begin(
        *ASKED, assistant("Where?"), user("Right."), assistant("Right it is."), user("Then?")
    )
    assert (more.continuation, more.conversation) == (Continuation.EXACT, 1)
    assert more.base == fork


def test_a_history_cut_after_an_earlier_reply_forks_there(episode: Episode) -> None:
    _, call = episode.call(*ASKED, reply="Where?")
    told = (*ASKED, assistant("Where?"), user("Here."))
    episode.call(*told, reply="I see.")

    edited = episode.begin(*ASKED, assistant("Where?"), user("There."))

    assert (edited.continuation, edited.base) == (Continuation.FORKED, call)


def test_a_call_that_failed_lets_another_go_on_in_its_place(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?")
    told = (*ASKED, assistant("Where?"), user("Here."))
    episode.tree.give_up(episode.begin(*told))

    assert episode.begin(*told).continuation is Continuation.EXACT


def test_a_call_whose_tokens_cannot_be_gone_on_from_leaves_its_place_too(
    episode: Episode,
) -> None:
    episode.call(*ASKED, reply="Where?")
    told = (*ASKED, assistant("Where?"), user("Here."))
    turn = episode.begin(*told)
    episode.tree.fork(turn)

    assert (turn.continuation, turn.conversation) == (Continuation.FORKED, 1)
    assert turn.base is None
    assert episode.begin(*told).continuation is Continuation.EXACT


def test_a_title_between_two_turns_does_not_take_their_place(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?")
    told = (*ASKED, assistant("Where?"))
    title, _ = episode.call(*told, user("Name this chat."), reply="Search", trained=False)
    turn, _ = episode.call(*told, user("Here."), reply="I see.")
    late = episode.begin(*told, user("Name it again."), trained=False)

    assert (title.continuation, turn.continuation) == (Continuation.EXACT, Continuation.EXACT)
    assert turn.conversation == 0
    assert late.continuation is Continuation.FORKED


def test_a_turn_of_another_model_between_two_keeps_them_in_one_conversation(
    episode: Episode,
) -> None:
    episode.call(*ASKED, reply="Where?")
    told = (*ASKED, assistant("Where?"), user("Ask the other."))
    episode.call(*told, reply="Here.", trained=False)
    mine = episode.begin(*told, assistant("Here."), user("And now?"))
    second = episode.begin(*ASKED, assistant("Where?"), user("Never mind."))

    assert (mine.continuation, mine.conversation) == (Continuation.EXACT, 0)
    assert second.continuation is Continuation.FORKED  # its place is taken, two calls further on


def test_other_tools_change_the_prompt_from_its_first_token(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?", tools=(SEARCH,))
    told = (*ASKED, assistant("Where?"), user("Here."))

    without = episode.begin(*told)
    assert (without.continuation, without.base) == (Continuation.FORKED, None)
    assert without.new_messages == (user("Here."),)
    assert episode.begin(*told, tools=(SEARCH,)).continuation is Continuation.EXACT


def test_another_tokenizer_cannot_go_on_from_the_tokens(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?")
    prompt = ChatPrompt((*ASKED, assistant("Where?"), user("Here.")))
    turn = episode.tree.begin(prompt, trained=True, renderer=ByteChatRenderer())
    assert (turn.continuation, turn.base) == (Continuation.FORKED, None)


def test_a_hosted_models_reply_is_gone_on_from_by_itself_and_not_by_the_policy(
    episode: Episode,
) -> None:
    tree = episode.tree
    hosted = tree.begin(ChatPrompt(ASKED), trained=False, renderer=None)
    call = Call(messages=ASKED, reply="Where?", sampled=None, trained=False)
    tree.end(hosted, PackedCall(call), reply=assistant("Where?"))
    # nobody here knows its thoughts, so any may come back
    told = ChatPrompt((*ASKED, assistant("Where?", reasoning="Hm."), user("Here.")))

    assert tree.begin(told, trained=False, renderer=None).continuation is Continuation.REWRITTEN
    ours = tree.begin(told, trained=True, renderer=RENDERER)
    assert (ours.continuation, ours.base) == (Continuation.FORKED, None)


def test_a_reply_that_ends_the_prompt_is_not_gone_on_from(episode: Episode) -> None:
    episode.call(*ASKED, reply="Where?")
    turn = episode.begin(*ASKED, assistant("Where?"))
    assert (turn.continuation, turn.base) == (Continuation.START, None)


# What is looked through

LOOK = ToolCall(id="call_1", name="look", arguments='{"place": "cellar", "depth": 1}')
REPLY = assistant("I look.", LOOK, reasoning="It may be below.")
DARK = tool("Dark.\n", of="call_1")


@pytest.mark.parametrize(
    ("sent", "rewrite"),
    [
        (replace(REPLY, reasoning=""), Rewrite.REASONING),
        (replace(REPLY, reasoning=" It may be below.\n"), Rewrite.REASONING),
        (replace(REPLY, content="I look. \n"), Rewrite.WHITE_SPACE),
        (replace(REPLY, content="\nI look."), Rewrite.WHITE_SPACE),
        (replace(REPLY, content=("I ", "look.")), Rewrite.PARTS),
        *(
            (replace(REPLY, tool_calls=(replace(LOOK, arguments=arguments),)), Rewrite.ARGUMENTS)
            for arguments in (
                '{"place":"cellar","depth":1}',
                '{"depth": 1, "place": "cellar"}',
                '{"place": "cellar", "depth": 1.0}',
                '{"place": "cell\\u0061r", "depth": 1}\n',
            )
        ),
        (replace(REPLY, tool_calls=(replace(LOOK, id="1"),)), Rewrite.TOOL_IDS),
    ],
)
def test_a_change_that_means_nothing_is_looked_through_and_counted(
    episode: Episode, sent: Message, rewrite: Rewrite
) -> None:
    _, call = episode.call(*ASKED, reply=REPLY, tools=(SEARCH,))

    turn, _ = episode.call(*ASKED, sent, DARK, reply="Then up.", tools=(SEARCH,))

    assert (turn.continuation, turn.base) == (Continuation.REWRITTEN, call)
    assert turn.conversation == 0
    assert dict(episode.tree.rewrites) == {rewrite: 1}
    # the next prompt repeats what this one said: nothing is changed but that
    again = episode.begin(*ASKED, sent, DARK, assistant("Then up."), user("Well?"), tools=(SEARCH,))
    assert again.continuation is Continuation.EXACT


@pytest.mark.parametrize(
    "sent",
    [
        replace(REPLY, content="I looked."),
        replace(REPLY, content="I  look."),  # white space within a text may be a drawing
        replace(REPLY, reasoning="It may be above."),
        replace(REPLY, tool_calls=()),
        replace(REPLY, tool_calls=(LOOK, LOOK)),
        replace(REPLY, tool_calls=(replace(LOOK, name="listen"),)),
        replace(REPLY, tool_calls=(replace(LOOK, arguments='{"place": "cellar", "depth": 2}'),)),
        replace(REPLY, tool_calls=(replace(LOOK, arguments='{"place": "cellar", "depth": "1"}'),)),
        replace(REPLY, tool_calls=(replace(LOOK, arguments='{"place": "cellar'),)),
        replace(REPLY, tool_calls=(replace(LOOK, arguments="[" * 100_000),)),
    ],
)
def test_a_change_that_means_something_is_another_conversation(
    episode: Episode, sent: Message
) -> None:
    episode.call(*ASKED, reply=REPLY)
    turn = episode.begin(*ASKED, sent, DARK)
    assert (turn.continuation, turn.conversation, turn.base) == (Continuation.CHANGED, 1, None)
    assert not episode.tree.rewrites


LOOKS = Tool(
    name="look",
    parameters=json.dumps(
        {
            "properties": {
                "place": {"type": "string"},
                "depth": {"type": "number", "default": 1.0},
                "lit": {"type": "boolean", "default": False},
                "by": {"default": None},
            }
        }
    ),
)
"""`depth` was asked for with its default, `lit` and `by` were left out."""


def looked(arguments: str) -> Message:
    return replace(REPLY, tool_calls=(replace(LOOK, arguments=arguments),))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"place": "cellar", "depth": 1, "lit": false}',
        '{"lit":false,"by":null,"place":"cellar","depth":1}',
        '{"place": "cellar"}',
    ],
)
def test_an_argument_that_has_its_default_is_the_same_as_none(
    episode: Episode, arguments: str
) -> None:
    sent, tools = looked(arguments), (SEARCH, LOOKS)
    _, call = episode.call(*ASKED, reply=REPLY, tools=tools)

    turn, _ = episode.call(*ASKED, sent, DARK, reply="Then up.", tools=tools)

    assert (turn.continuation, turn.conversation) == (Continuation.REWRITTEN, 0)
    assert turn.base == call
    assert dict(episode.tree.rewrites) == {Rewrite.DEFAULTS: 1}
    longer = (*ASKED, sent, DARK, assistant("Then up."), user("Well?"))
    assert episode.begin(*longer, tools=tools).continuation is Continuation.EXACT
    # once it was seen it is known, whatever is offered
    assert episode.begin(*longer, tools=(SEARCH,)).continuation is Continuation.FORKED


@pytest.mark.parametrize(
    ("arguments", "tools"),
    [
        ('{"place": "cellar", "depth": 1, "lit": true}', (LOOKS,)),
        ('{"place": "cellar", "depth": 1, "lit": 0}', (LOOKS,)),
        ('{"place": "cellar", "depth": 1, "by": ""}', (LOOKS,)),
        ('{"depth": 1}', (LOOKS,)),
        ('{"place": "cellar"}', ()),
        ('{"place": "cellar"}', (replace(LOOKS, name="search"),)),
        ('{"place": "cellar"}', (replace(LOOKS, parameters="[]"),)),
        ('{"place": "cellar"}', (replace(LOOKS, parameters='{"properties": {"depth": 1}}'),)),
        ('{"place": "cellar"}', (replace(LOOKS, parameters="{"),)),
    ],
)
def test_an_argument_that_is_no_default_is_another_conversation(
    episode: Episode, arguments: str, tools: tuple[Tool, ...]
) -> None:
    episode.call(*ASKED, reply=REPLY, tools=tools)
    turn = episode.begin(*ASKED, looked(arguments), DARK, tools=tools)
    assert (turn.continuation, turn.conversation, turn.base) == (Continuation.CHANGED, 1, None)


def test_of_a_tool_that_a_message_tells_of_the_defaults_are_known_too(episode: Episode) -> None:
    def prompt(*messages: Message) -> ChatPrompt:
        return ChatPrompt(messages, (SEARCH,), loaded_tools=(LOOKS,))

    first = episode.tree.begin(prompt(*ASKED), trained=True, renderer=RENDERER)
    call = episode.end(first, REPLY)
    sent = prompt(*ASKED, looked('{"place": "cellar"}'), DARK)

    assert episode.tree.begin(sent, trained=True, renderer=RENDERER).base == call


def test_changes_of_prompts_and_tools_are_looked_through_too(episode: Episode) -> None:
    prompt = (system("Help.\n"), Message(role="user", content=("Where ", "is it?")))
    episode.call(*prompt, reply="Where?", tools=(SEARCH,))
    spaced = replace(SEARCH, parameters='{"properties":{},"type":"object"}')

    turn, _ = episode.call(*ASKED, assistant("Where?"), user("?"), reply="", tools=(spaced,))

    assert turn.continuation is Continuation.REWRITTEN
    assert dict(episode.tree.rewrites) == {
        Rewrite.TOOLS: 1,
        Rewrite.WHITE_SPACE: 1,
        Rewrite.PARTS: 1,
    }


def test_empty_content_and_arguments_are_none(episode: Episode) -> None:
    bare = ToolCall(id="1", name="look", arguments="")
    episode.call(*ASKED, reply=assistant("", bare))
    sent = Message(role="assistant", content=(), tool_calls=(replace(bare, arguments="{}"),))
    assert episode.begin(*ASKED, sent, tool("Dark.", of="1")).base is not None


def test_pictures_are_told_apart(episode: Episode) -> None:
    def seen(data: bytes) -> Message:
        return Message(role="user", content=("Look:", Picture.of(data)))

    episode.call(seen(b"cat"), reply="A cat.")
    same = episode.begin(seen(b"cat"), assistant("A cat."), user("Sure?"))
    other = episode.begin(seen(b"dog"), assistant("A cat."), user("Sure?"))
    assert (same.continuation, other.continuation) == (Continuation.EXACT, Continuation.START)


@pytest.mark.parametrize(
    "prompt",
    [
        (system("It is 10:01."), user("Where?"), assistant(THERE), user("Go on.")),
        (system("It is 10:00."), assistant(THERE), user("Go on.")),
        (system("It is 10:00."), user("Where?"), user("Steps left: 8"), assistant(THERE)),
        (system("It is 10:00."), user("Where?"), assistant("In"), user("Go on.")),
    ],
    ids=["a clock", "a window", "a note that is gone", "a reply that is cut"],
)
def test_a_prompt_with_a_calls_reply_after_other_messages_is_changed(
    episode: Episode, prompt: tuple[Message, ...]
) -> None:
    episode.call(system("It is 10:00."), user("Where?"), reply=THERE)
    turn = episode.begin(*prompt)
    assert (turn.continuation, turn.conversation, turn.base) == (Continuation.CHANGED, 1, None)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (
            (system("It is 10:01."), user("Where?"), assistant(THERE), user("Go on.")),
            "message 0 (system) was 'It is 10:00.' and is 'It is 10:01.'",
        ),
        (
            (system("It is 10:00."), assistant(THERE), user("Go on.")),
            f"message 1 (assistant) was of the role user, 'Where?' and is {THERE!r}",
        ),
        (
            (system("It is 10:00."), user("Where?"), assistant("In"), user("Go on.")),
            f"message 2 (assistant) was {THERE!r} and is 'In'",
        ),
        (
            (system(f"It is 10:00.{'!' * 90}"), user("Where?"), assistant(THERE), user("Go on.")),
            f"message 0 (system) was 'It is 10:00.' and is 'It is 10:00.{'!' * 40}'…",
        ),
    ],
)
def test_the_first_message_that_differs_is_told_with_both_sides(
    episode: Episode, prompt: tuple[Message, ...], told: str
) -> None:
    episode.call(system("Name this talk."), user("Where?"), reply="Places")
    episode.call(system("It is 10:00."), user("Where?"), reply=THERE)

    turn = episode.begin(*prompt)

    assert str(turn.difference) == told


def test_a_difference_is_shown_where_it_is(episode: Episode) -> None:
    long = "You are in a cave that goes on for miles. " * 9
    episode.call(user(f"{long}It is 10:00.{long}"), reply=THERE)

    turn = episode.begin(user(f"{long}It is 10:01.{long}"), assistant(THERE), user("?"))

    assert str(turn.difference) == (
        "message 0 (user) was …'or miles. It is 10:00.You are in a cave that goes on for mil'… "
        "and is …'or miles. It is 10:01.You are in a cave that goes on for mil'…"
    )


@pytest.mark.parametrize(
    ("sent", "was", "now"),
    [
        (replace(REPLY, tool_calls=()), '[["look"', "'I look.'"),
        (replace(REPLY, tool_calls=(replace(LOOK, name="listen"),)), "look", "listen"),
        (replace(REPLY, reasoning="It may be above."), "below", "above"),
    ],
)
def test_calls_and_thoughts_that_differ_are_told(
    episode: Episode, sent: Message, was: str, now: str
) -> None:
    episode.call(*ASKED, reply=REPLY)

    before, _, after = str(episode.begin(*ASKED, sent, DARK).difference).partition(" and is ")

    assert before.startswith(f"message {len(ASKED)} (assistant) was ")
    assert was in before
    assert now in after


def test_what_goes_on_differs_nowhere(episode: Episode) -> None:
    episode.call(*ASKED, reply=REPLY)

    assert episode.begin(*ASKED, REPLY, DARK).difference is None
    assert episode.begin(user("Something else")).difference is None


def test_a_short_reply_is_changed_only_after_what_it_answered(episode: Episode) -> None:
    episode.call(system("It is 10:00."), user("Where?"), reply="There.")
    clock = episode.begin(system("It is 10:01."), user("Where?"), assistant("There."), user("?"))
    example = episode.begin(user("A place?"), assistant("There."), user("Where?"))
    assert clock.continuation is Continuation.CHANGED
    assert example.continuation is Continuation.START


def test_examples_in_a_prompt_are_no_change(episode: Episode) -> None:
    examples = (user("2 + 2?"), assistant("4"))
    for question in ("3 + 3?", "4 + 4?"):
        turn = episode.begin(*examples, user(question))
        assert turn.continuation is Continuation.START
        episode.end(turn, "I know.")


def test_replies_that_read_alike_are_told_apart_by_the_ids_of_their_tool_calls(
    episode: Episode,
) -> None:
    calls = [
        episode.call(*ASKED, reply=assistant("", replace(LOOK, id=name), reasoning=name))[1]
        for name in ("a", "b", "c")
    ]
    bases = [
        episode.begin(*ASKED, assistant("", replace(LOOK, id=name)), tool("Dark.", of=name)).base
        for name in ("b", "a", "c")
    ]
    assert bases == [calls[1], calls[0], calls[2]]
    assert [base.bare.conversation for base in bases if base] == [1, 0, 2]


def test_thoughts_that_are_sent_back_tell_replies_apart(episode: Episode) -> None:
    calls = [
        episode.call(*ASKED, reply=assistant("Yes.", reasoning=thought))[1]
        for thought in ("One.", "Two.")
    ]
    turn = episode.begin(*ASKED, assistant("Yes.", reasoning="One."), user("Sure?"))
    assert (turn.continuation, turn.base) == (Continuation.EXACT, calls[0])


def test_messages_are_kept_once_for_all_calls(episode: Episode) -> None:
    def sent(text: str) -> Message:
        return json_copy(user(text))

    _, first = episode.call(sent("x" * 1000), reply="a")
    _, second = episode.call(sent("x" * 1000), assistant("a"), sent("y"), reply="b")
    assert second.bare.messages[0] is first.bare.messages[0]


def json_copy(message: Message) -> Message:
    """The message as a second request brings it: equal, and another object."""
    return replace(message, content=json.loads(json.dumps(message.text)))


# Prompts of tokens


def test_a_prompt_of_tokens_goes_on_from_the_longest_call_that_it_repeats() -> None:
    tree = ConversationTree()

    def call(tokens: tuple[int, ...], reply: tuple[int, ...]) -> Turn:
        turn = tree.begin(tokens, trained=True, renderer=RENDERER)
        sampled = SampledTokens(
            prompt_tokens=tokens,
            action_tokens=reply,
            behavior_logprobs=(-1.0,) * len(reply),
            policy_version=0,
        )
        made = Call(
            messages=(), reply="", sampled=sampled, conversation=turn.conversation, trained=True
        )
        tree.end(turn, PackedCall(made), reply=assistant(""))
        return turn

    turns = [
        call((1, 2), (3, 4)),
        call((1, 2, 3, 4, 5), (6,)),
        call((1, 2, 3, 4, 5, 6), (7,)),  # nothing is new
        call((1, 2, 3, 4, 9), (6,)),  # from the first again
        call((1, 2, 3, 8), (6,)),  # from a part of a reply
    ]
    assert [(turn.continuation, turn.conversation) for turn in turns] == [
        (Continuation.START, 0),
        (Continuation.EXACT, 0),
        (Continuation.EXACT, 0),
        (Continuation.FORKED, 1),
        (Continuation.START, 2),
    ]


# Against the definition

texts = st.sampled_from(["a", "b", "a ", "b\n"])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),  # which call's messages it begins with
            st.integers(0, 4),  # how many of them are left out at their end
            st.lists(texts, min_size=1, max_size=2),  # what is new
            texts,  # the reply
            st.booleans(),  # whether it fails
        ),
        max_size=12,
    )
)
@settings(max_examples=200)
def test_what_a_prompt_goes_on_from_is_the_longest_call_that_it_repeats(
    turns: list[tuple[int, int, list[str], str, bool]],
) -> None:
    episode = Episode(ConversationTree())
    histories: list[tuple[Message, ...]] = [()]
    ended: dict[int, tuple[Message, ...]] = {}
    gone_on_from: set[int] = set()
    conversation_of: dict[int, int] = {}
    made: list[PackedCall] = []
    for which, cut, new, reply, fails in turns:
        history = histories[which % len(histories)]
        prompt = (*history[: max(0, len(history) - cut)], *map(user, new))
        repeated = {
            number: whole
            for number, whole in ended.items()
            if len(whole) < len(prompt)
            and [one.text.strip() for one in whole]
            == [one.text.strip() for one in prompt[: len(whole)]]
            and [one.role for one in whole] == [one.role for one in prompt[: len(whole)]]
        }
        longest = max(map(len, repeated.values()), default=0)
        best = {number for number, whole in repeated.items() if len(whole) == longest}

        turn = episode.begin(*prompt)

        assert turn.new_messages == prompt[longest:]
        if not best:
            assert (turn.continuation, turn.base) == (Continuation.START, None)
        else:
            base = next(number for number in best if made[number] is turn.base)
            if turn.continuation is Continuation.FORKED:
                assert best <= gone_on_from
            else:
                assert base not in gone_on_from
                assert turn.conversation == conversation_of[base]
                exact = ended[base] == prompt[:longest]
                assert turn.continuation is (
                    Continuation.EXACT if exact else Continuation.REWRITTEN
                )
        if turn.continuation in (Continuation.START, Continuation.FORKED):
            assert turn.conversation not in conversation_of.values()
        if fails:
            episode.tree.give_up(turn)
            continue
        if turn.continuation in (Continuation.EXACT, Continuation.REWRITTEN):
            gone_on_from.add(next(n for n in best if made[n] is turn.base))
        made.append(episode.end(turn, reply))
        conversation_of[len(made) - 1] = turn.conversation
        ended[len(made) - 1] = (*prompt, assistant(reply))
        histories.append((*prompt, assistant(reply)))
