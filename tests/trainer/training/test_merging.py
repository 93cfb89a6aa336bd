"""Tests for `longhaul_trainer.training.merging`: where a row ends, why, and what is in it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.store.packing import content_hash
from longhaul_core.types import (
    Call,
    Continuation,
    Message,
    Observation,
    Picture,
    SplitReason,
    Step,
)
from longhaul_trainer.training.merging import Row, cut_into_rows, metadata_of, with_spelled_marks
from longhaul_trainer.training.step_metadata import GroupName
from steps import one_call_step, sampled_of, with_call
from store_samples import make_trajectory


def step(index: int, prompt: str, action: str, *, version: int = 0) -> Step:
    """A step whose tokens are the characters of two words."""
    return one_call_step(
        index,
        Observation(text="here"),
        messages=(),
        prompt_tokens=tuple(map(ord, prompt)),
        action_tokens=tuple(map(ord, action)),
        behavior_logprobs=tuple(-0.125 * place for place in range(1, len(action) + 1)),
        reply=action,
        action=action,
        action_valid=True,
        reward=0.0,
        policy_version=version,
    )


def text(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


def steps_of(row: Row) -> list[Step]:
    return [call.step for call in row.calls]


CHAT = [
    step(0, "abc", "X"),
    step(1, "abcXde", "YZ"),
    step(2, "abcXdeYZ", "W"),  # no gap: the prompt adds nothing
    step(3, "abcXdeYZWf", "V"),
]
"""Each step extends the one before it."""


def test_steps_that_extend_each_other_are_one_row() -> None:
    (row,) = cut_into_rows(CHAT, form="merged")

    assert row.reason is SplitReason.FIRST_STEP
    assert steps_of(row) == CHAT
    assert text(list(row.prompt_tokens)) == "abc"
    assert text(row.response_tokens) == "XdeYZWfV"
    assert row.response_mask == [1, 0, 0, 1, 1, 1, 0, 1]
    assert row.response_logprobs == [-0.125, 0, 0, -0.125, -0.25, -0.125, 0, -0.125]
    assert row.starts == [0, 3, 5, 7]


def test_unmerged_every_step_is_a_row_of_what_was_read_and_written() -> None:
    rows = cut_into_rows(CHAT, form="step")

    assert [steps_of(row) for row in rows] == [[each] for each in CHAT]
    assert [text(row.response_tokens) for row in rows] == ["X", "YZ", "W", "V"]
    assert [row.response_mask for row in rows] == [[1], [1, 1], [1], [1]]
    assert [row.reason for row in rows] == [SplitReason.FIRST_STEP] + [
        SplitReason.ONE_ROW_PER_STEP
    ] * 3


@pytest.mark.parametrize(
    "prompt",
    [
        "abcYde",  # the reply was written anew
        "abcX"[:-1],  # the reply is not there
        "abdXde",  # the beginning changed
        "bcXde",  # the memory dropped the oldest
        "",
    ],
)
def test_a_prompt_that_does_not_repeat_what_was_read_and_written_begins_a_row(prompt: str) -> None:
    first, second = cut_into_rows([CHAT[0], step(1, prompt, "YZ")], form="merged")

    assert (steps_of(first), second.reason) == ([CHAT[0]], SplitReason.PROMPT_CHANGED)
    assert text(second.response_tokens) == "YZ"
    assert second.starts == [0]


def test_another_picture_in_an_earlier_message_begins_a_row() -> None:
    """Two pictures of one size have the same tokens."""

    def shown(of: Step, *pictures: bytes) -> Step:
        messages = tuple(
            Message(role="user", content=("See:", Picture.of(picture))) for picture in pictures
        )
        (call,) = of.calls
        return replace(of, calls=(replace(call, messages=messages),))

    same = [shown(CHAT[0], b"a"), shown(CHAT[1], b"a", b"b")]
    changed = [shown(CHAT[0], b"a"), shown(CHAT[1], b"c", b"b")]

    (row,) = cut_into_rows(same, form="merged")
    assert row.pictures == (Picture.of(b"a"), Picture.of(b"b"))
    first, second = cut_into_rows(changed, form="merged")
    assert first.pictures == (Picture.of(b"a"),)
    assert second.reason is SplitReason.PROMPT_CHANGED


def test_other_weights_begin_a_row() -> None:
    steps = [*CHAT[:2], with_call(CHAT[2], policy_version=3), with_call(CHAT[3], policy_version=3)]

    rows = cut_into_rows(steps, form="merged")

    assert [len(row.calls) for row in rows] == [2, 2]
    assert rows[1].reason is SplitReason.POLICY_CHANGED
    assert text(rows[1].response_tokens) == "WfV"


@pytest.mark.parametrize(
    ("limit", "lengths"), [(11, [4]), (10, [3, 1]), (8, [2, 1, 1]), (7, [1, 1, 1, 1]), (1, [1] * 4)]
)
def test_a_row_is_not_longer_than_its_limit_unless_it_is_one_call(
    limit: int, lengths: list[int]
) -> None:
    # after its steps a row has 4, 8, 9 and 11 tokens
    rows = cut_into_rows(CHAT, form="merged", max_row_tokens=limit)

    assert [len(row.calls) for row in rows] == lengths
    assert {row.reason for row in rows[1:]} <= {SplitReason.ROW_FULL}


def test_an_anchor_travels_as_its_hash_unless_texts_are_compared() -> None:
    trajectory = replace(
        make_trajectory(rewards=(0.0, 0.0)),
        final_observation=Observation(text="It is dark.", anchor_state="cellar"),
    )

    hashes = metadata_of(trajectory, group=GroupName(3, 2), retry=0)
    texts = metadata_of(trajectory, group=GroupName(3, 2), retry=0, anchor_texts=True)

    anchors = [step.observation.anchor for step in trajectory.steps]
    assert [step.anchor for step in hashes.steps] == [content_hash(anchor) for anchor in anchors]
    assert hashes.final_anchor == content_hash("cellar")
    assert [step.anchor for step in texts.steps] == anchors
    assert texts.final_anchor == "cellar"


def test_a_step_whose_observation_spells_a_control_token_is_marked() -> None:
    trajectory = make_trajectory(rewards=(0.0, 0.0))
    shown = [step.observation.text for step in trajectory.steps]
    assert shown[0] != shown[1]

    metadata = with_spelled_marks(
        metadata_of(trajectory, group=GroupName(3, 2), retry=0),
        trajectory,
        spells_mark=lambda text: text == shown[1],
    )

    assert [step.spells_mark for step in metadata.steps] == [False, True]


def test_a_step_is_marked_for_what_its_program_newly_sends_of_users_and_tools() -> None:
    trajectory = make_trajectory(rewards=(0.0,) * 4)
    (call,) = trajectory.steps[0].calls
    chat = [
        Message(role="system", content="in charge: <mark>"),
        Message(role="assistant", content="a reply: <mark>"),
        Message(role="tool", content="found: <mark>", tool_call_id="call00001"),
        Message(role="user", content="composed: <mark>"),
    ]
    prompts = (chat[:1], chat[:2], chat[:3], chat[:3])
    steps = [
        replace(one, calls=(replace(call, messages=tuple(sent), continuation=Continuation.EXACT),))
        for one, sent in zip(trajectory.steps, prompts, strict=True)
    ]
    steps[0] = replace(steps[0], calls=(replace(call, messages=tuple(chat), continuation=None),))
    trajectory = replace(trajectory, steps=tuple(steps))

    metadata = with_spelled_marks(
        metadata_of(trajectory, group=GroupName(3, 2), retry=0),
        trajectory,
        spells_mark=lambda text: "<mark>" in text,
    )

    assert [step.spells_mark for step in metadata.steps] == [False, False, True, False]


def test_a_step_knows_how_its_calls_go_on_and_which_asked_for_more_than_they_got() -> None:
    trajectory = make_trajectory(rewards=(0.0, 0.0))
    first, second = trajectory.steps
    (asked,) = first.calls
    of_program = replace(asked, continuation=Continuation.FORKED, overridden=("top_k", "seeds"))
    steps = (replace(first, calls=(of_program,)), second)

    metadata = metadata_of(replace(trajectory, steps=steps), group=GroupName(3, 2), retry=0)

    assert [step.continuations for step in metadata.steps] == [("forked",), ()]
    assert [step.overridden_calls for step in metadata.steps] == [1, 0]


def test_the_spans_of_a_row_say_where_each_reply_is_and_why_the_row_begins() -> None:
    (row,) = cut_into_rows(CHAT, form="merged")

    assert [(span.step, span.call, span.start, span.stop) for span in row.spans] == [
        (0, 0, 0, 1), (1, 0, 3, 5), (2, 0, 5, 6), (3, 0, 7, 8)
    ]  # fmt: skip
    assert [span.split_reason for span in row.spans] == ["first_step", None, None, None]


def call(prompt: str, reply: str, **changes: Any) -> Call:  # noqa: ANN401
    """A call whose tokens are the characters of two words."""
    (made,) = step(0, prompt, reply).calls
    return replace(made, **changes)


def with_calls(index: int, *calls: Call) -> Step:
    return replace(step(index, "", "."), calls=calls)


TWO_STREAMS = [
    with_calls(0, call("p", "P", purpose="plan"), call("a", "A")),
    with_calls(1, call("pPq", "Q", purpose="plan"), call("aAb", "B")),
    with_calls(2, call("aAbBc", "C")),
]
"""A planner and an actor, each of whose prompts go on from its own last call."""


def test_a_call_continues_the_row_of_its_own_stream() -> None:
    plan, act = cut_into_rows(TWO_STREAMS, form="merged")

    assert [(s.step, s.call, s.valued) for s in plan.spans] == [(0, 0, False), (1, 0, False)]
    assert [(s.step, s.call, s.valued) for s in act.spans] == [
        (0, 1, True), (1, 1, True), (2, 0, True)
    ]  # fmt: skip
    assert (text(plan.response_tokens), text(act.response_tokens)) == ("PqQ", "AbBcC")
    assert (plan.reason, act.reason) == (SplitReason.FIRST_STEP, SplitReason.FIRST_STEP)


def test_a_step_is_valued_at_its_last_trained_call_that_acts_or_at_its_last_trained_one() -> None:
    """A program's step may have a judge's call after the policy's, or none that acts."""
    judge = call("j", "J", trained=False)
    steps = [
        with_calls(0, call("a", "A"), call("p", "P", purpose="plan"), judge),
        with_calls(1, call("b", "B", purpose="plan"), call("c", "C", purpose="plan"), judge),
        with_calls(2, judge),
    ]

    rows = cut_into_rows(steps, form="step")

    valued = {(s.step, s.call): s.valued for row in rows for s in row.spans}
    assert valued == {(0, 0): True, (0, 1): False, (1, 0): False, (1, 1): True}


def test_calls_of_two_agents_for_one_purpose_are_two_streams() -> None:
    steps = [
        with_calls(0, call("a", "A", agent="red"), call("aA", "B", agent="blue")),
        with_calls(1, call("aAc", "C", agent="red")),
    ]

    red, blue = cut_into_rows(steps, form="merged")

    assert [(s.step, s.call) for s in red.spans] == [(0, 0), (1, 0)]
    assert [(s.step, s.call) for s in blue.spans] == [(0, 1)]


def test_a_call_that_is_not_trained_is_in_no_row_and_ends_none() -> None:
    judged = call("x", "Y", trained=False)
    hosted = call("x", "Y", trained=False, sampled=None)
    steps = [
        with_calls(0, call("a", "A"), judged),
        with_calls(1, hosted),
        with_calls(2, judged, call("aAb", "B")),
    ]

    (row,) = cut_into_rows(steps, form="merged")

    assert [(s.step, s.call) for s in row.spans] == [(0, 0), (2, 1)]
    metadata = metadata_of(
        replace(make_trajectory(rewards=(0.0,) * 3), steps=tuple(steps)),
        group=GroupName(3, 2),
        retry=0,
    )
    assert [s.trained_calls for s in metadata.steps] == [(0,), (), (1,)]
    # what the engine read and wrote, trained or not
    assert [(s.prompt_tokens, s.action_tokens) for s in metadata.steps] == [(2, 2), (0, 0), (4, 2)]


def test_each_call_carries_its_share_of_the_credit() -> None:
    steps = [with_calls(0, call("p", "P", purpose="plan", credit_share=0.25), call("a", "A"))]

    rows = cut_into_rows(steps, form="step")

    assert [s.credit_share for row in rows for s in row.spans] == [0.25, 1.0]


words = st.text("ab", max_size=2)


@given(st.lists(st.tuples(st.booleans(), words, st.text("xy", min_size=1, max_size=3))), st.data())
@settings(max_examples=100)
def test_the_tokens_of_every_step_are_in_its_row_and_nothing_else_is_sampled(
    turns: list[tuple[bool, str, str]], data: st.DataObject
) -> None:
    steps = [step(0, "a", "x")]
    for extends, gap, action in turns:
        before = sampled_of(steps[-1])
        known = before.prompt_tokens + before.action_tokens if extends else (98,)
        made = step(len(steps), gap, action, version=data.draw(st.integers(0, 1)))
        steps.append(with_call(made, prompt_tokens=known + sampled_of(made).prompt_tokens))
    limit = data.draw(st.none() | st.integers(1, 40))

    rows = cut_into_rows(steps, form="merged", max_row_tokens=limit)

    assert [each for row in rows for each in steps_of(row)] == steps
    for row in rows:
        whole = list(row.prompt_tokens) + row.response_tokens
        sampled: list[int] = []
        for (_, _, _, each), start in zip(row.calls, row.starts, strict=True):
            read = len(each.prompt_tokens)
            assert tuple(whole[:read]) == each.prompt_tokens  # what the engine read
            span = slice(start, start + len(each.action_tokens))
            assert tuple(row.response_tokens[span]) == each.action_tokens
            assert tuple(row.response_logprobs[span]) == each.behavior_logprobs
            sampled += range(start, start + len(each.action_tokens))
        assert [t for t, m in enumerate(row.response_mask) if m] == sampled
        assert len(row.response_mask) == len(row.response_logprobs) == len(row.response_tokens)


@given(st.lists(st.lists(st.tuples(st.sampled_from(("", "plan")), words, st.booleans()))))
@settings(max_examples=100)
def test_every_trained_call_is_in_one_row_and_no_other_call_in_any(
    turns: list[list[tuple[str, str, bool]]],
) -> None:
    steps = [
        with_calls(
            index,
            *(
                call(prompt, "R", purpose=purpose or "act", trained=t)
                for purpose, prompt, t in calls
            ),
        )
        for index, calls in enumerate(turns)
    ]

    rows = cut_into_rows(steps, form="merged")

    assert sorted((s.step, s.call) for row in rows for s in row.spans) == [
        (index, place)
        for index, calls in enumerate(turns)
        for place, (_, _, trained) in enumerate(calls)
        if trained
    ]
    assert [row.spans[0].step for row in rows] == sorted(row.spans[0].step for row in rows)
    assert sum(sum(row.response_mask) for row in rows) == sum(len(row.calls) for row in rows)
    for row in rows:
        assert len({(one.call.agent, one.call.purpose) for one in row.calls}) == 1


# Conversations of a program

MAIN, SUB = {"conversation": 0}, {"conversation": 1, "continuation": Continuation.START}
FORK = {"conversation": 2, "continuation": Continuation.FORKED}

PROGRAM = [
    with_calls(0, call("a", "A", **MAIN)),
    with_calls(1, call("s", "S", **SUB)),
    with_calls(2, call("aAb", "B", **MAIN)),
    with_calls(3, call("sSt", "T", **SUB)),
    with_calls(4, call("aAf", "F", **FORK)),
    with_calls(5, call("aAbBc", "C", **MAIN)),
    with_calls(6, call("aAfFg", "G", conversation=2, continuation=Continuation.EXACT)),
]
"""A main conversation, a sub-agent's beside it, and one that forks after the first reply."""


def test_conversations_beside_each_other_have_a_row_each() -> None:
    main, sub, fork = cut_into_rows(PROGRAM, form="merged")

    assert [[each.step.index for each in row.calls] for row in (main, sub, fork)] == [
        [0, 2, 5],
        [1, 3],
        [4, 6],
    ]
    assert [row.reason for row in (main, sub, fork)] == [
        SplitReason.FIRST_STEP,
        SplitReason.NEW_CONVERSATION,
        SplitReason.FORKED,
    ]
    assert [text(row.response_tokens) for row in (main, sub, fork)] == ["AbBcC", "StT", "FgG"]
    # what the fork repeats is read as a prompt; the reply A in it is trained in the main row alone
    assert text(list(fork.prompt_tokens)) == "aAf"
    assert [row.response_mask for row in (main, sub, fork)] == [
        [1, 0, 1, 0, 1],
        [1, 0, 1],
        [1, 0, 1],
    ]


def test_a_reason_is_that_of_the_first_trained_call_of_its_stream() -> None:
    steps = [
        with_calls(0, call("a", "A", **MAIN)),
        with_calls(1, call("aAf", "F", trained=False, **FORK)),
        with_calls(2, call("aAfFg", "G", conversation=2, continuation=Continuation.EXACT)),
        with_calls(3, call("aAbX", "Y", agent="red", **MAIN)),
    ]

    rows = cut_into_rows(steps, form="merged")

    assert [row.reason for row in rows] == [
        SplitReason.FIRST_STEP,
        SplitReason.NEW_CONVERSATION,
        SplitReason.FIRST_STEP,
    ]


def test_a_turn_of_another_model_is_a_gap_of_its_conversations_row() -> None:
    steps = [
        with_calls(0, call("a", "A", **MAIN)),
        with_calls(1, call("aAb", "B", trained=False, **MAIN)),
        with_calls(2, call("aAbBc", "C", **MAIN)),
    ]

    (row,) = cut_into_rows(steps, form="merged")

    assert text(row.response_tokens) == "AbBcC"
    assert row.response_mask == [1, 0, 0, 0, 1]


@given(st.data())
@settings(max_examples=100)
def test_rows_of_conversations_are_those_of_the_definition(data: st.DataObject) -> None:
    """The definition: a call joins its predecessor's row if it extends it, within the limits."""
    calls: list[Call] = []
    for _ in range(data.draw(st.integers(0, 10))):
        before = data.draw(st.none() | st.sampled_from(calls)) if calls else None
        known = () if before is None else read_and_written(before)
        made = call(
            data.draw(words) or "p",
            data.draw(st.text("xy", min_size=1, max_size=3)),
            agent=data.draw(st.sampled_from(["", "red"])),
            conversation=data.draw(st.integers(0, 2)),
            continuation=data.draw(st.sampled_from(Continuation)),
            trained=data.draw(st.booleans()),
        )
        assert made.sampled is not None
        tokens = replace(
            made.sampled,
            prompt_tokens=known + made.sampled.prompt_tokens,
            policy_version=data.draw(st.integers(0, 1)),
        )
        calls.append(replace(made, sampled=tokens))
    limit = data.draw(st.none() | st.integers(1, 20))
    steps = [with_calls(index, made) for index, made in enumerate(calls)]

    naive: dict[int, int] = {}
    for index, made in enumerate(calls):
        streams = [(one.agent, one.purpose, one.conversation) for one in calls]
        earlier = [i for i in naive if streams[i] == streams[index]]
        if not made.trained:
            continue
        naive[index] = index
        if earlier:
            before = calls[earlier[-1]]
            known = read_and_written(before)
            assert before.sampled is not None
            assert made.sampled is not None
            joins = (
                made.sampled.prompt_tokens[: len(known)] == known
                and made.sampled.policy_version == before.sampled.policy_version
                and (limit is None or len(read_and_written(made)) <= limit)
            )
            naive[index] = naive[earlier[-1]] if joins else index

    rows = cut_into_rows(steps, form="merged", max_row_tokens=limit)

    assert {s.step: row.spans[0].step for row in rows for s in row.spans} == naive
    for row in rows:
        whole = (*row.prompt_tokens, *row.response_tokens)
        for one, span in zip(row.calls, row.spans, strict=True):
            assert whole[: len(one.tokens.prompt_tokens)] == one.tokens.prompt_tokens
            assert tuple(row.response_tokens[span.start : span.stop]) == one.tokens.action_tokens


def read_and_written(made: Call) -> tuple[int, ...]:
    assert made.sampled is not None
    return made.sampled.prompt_tokens + made.sampled.action_tokens
