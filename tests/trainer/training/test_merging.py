"""Tests for `longhaul_trainer.training.merging`: where a row ends, why, and what is in it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longhaul_core.types import Observation, SplitReason, Step
from longhaul_trainer.training.merging import cut_into_rows, notes_of
from longhaul_trainer.training.step_metadata import GroupName
from steps import one_call_step, with_call
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
    assert row.steps == tuple(CHAT)
    assert text(list(row.prompt_tokens)) == "abc"
    assert text(row.response_tokens) == "XdeYZWfV"
    assert row.response_mask == [1, 0, 0, 1, 1, 1, 0, 1]
    assert row.response_logprobs == [-0.125, 0, 0, -0.125, -0.25, -0.125, 0, -0.125]
    assert row.starts == [0, 3, 5, 7]


def test_unmerged_every_step_is_a_row_of_what_was_read_and_written() -> None:
    rows = cut_into_rows(CHAT, form="step")

    assert [row.steps for row in rows] == [(each,) for each in CHAT]
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

    assert (first.steps, second.reason) == ((CHAT[0],), SplitReason.PROMPT_CHANGED)
    assert text(second.response_tokens) == "YZ"
    assert second.starts == [0]


def test_other_weights_begin_a_row() -> None:
    steps = [*CHAT[:2], with_call(CHAT[2], policy_version=3), with_call(CHAT[3], policy_version=3)]

    rows = cut_into_rows(steps, form="merged")

    assert [len(row.steps) for row in rows] == [2, 2]
    assert rows[1].reason is SplitReason.POLICY_CHANGED
    assert text(rows[1].response_tokens) == "WfV"


@pytest.mark.parametrize(
    ("limit", "lengths"), [(11, [4]), (10, [3, 1]), (8, [2, 1, 1]), (7, [1, 1, 1, 1]), (1, [1] * 4)]
)
def test_a_row_is_not_longer_than_its_limit_unless_it_is_one_step(
    limit: int, lengths: list[int]
) -> None:
    # after its steps a row has 4, 8, 9 and 11 tokens
    rows = cut_into_rows(CHAT, form="merged", max_row_tokens=limit)

    assert [len(row.steps) for row in rows] == lengths
    assert {row.reason for row in rows[1:]} <= {SplitReason.ROW_FULL}


def test_the_note_of_the_last_step_alone_says_where_the_episode_ended() -> None:
    trajectory = replace(
        make_trajectory(rewards=(0.0, 0.0, 0.0)),
        final_observation=Observation(text="It is dark.", anchor_state="cellar"),
    )

    notes = [
        note
        for row in cut_into_rows(trajectory.steps, form="step")
        for note in notes_of(row, trajectory, group=GroupName(3, 2), retry=0)
    ]

    assert [note.final_anchor for note in notes] == ["", "", "cellar"]


def test_the_notes_of_a_row_say_where_each_action_is_and_why_the_row_begins() -> None:
    trajectory = replace(make_trajectory(rewards=(0.0,) * 4), steps=tuple(CHAT))
    (row,) = cut_into_rows(CHAT, form="merged")

    notes = notes_of(row, trajectory, group=GroupName(3, 2), retry=1)

    assert [(note.step, note.start, note.stop) for note in notes] == [
        (0, 0, 1), (1, 3, 5), (2, 5, 6), (3, 7, 8)
    ]  # fmt: skip
    assert [note.split_reason for note in notes] == ["first_step", None, None, None]


words = st.text("ab", max_size=2)


@given(st.lists(st.tuples(st.booleans(), words, st.text("xy", min_size=1, max_size=3))), st.data())
@settings(max_examples=100)
def test_the_tokens_of_every_step_are_in_its_row_and_nothing_else_is_sampled(
    turns: list[tuple[bool, str, str]], data: st.DataObject
) -> None:
    steps = [step(0, "a", "x")]
    for extends, gap, action in turns:
        before = steps[-1]
        known = before.prompt_tokens + before.action_tokens if extends else (98,)
        made = step(len(steps), gap, action, version=data.draw(st.integers(0, 1)))
        steps.append(with_call(made, prompt_tokens=known + made.prompt_tokens))
    limit = data.draw(st.none() | st.integers(1, 40))

    rows = cut_into_rows(steps, form="merged", max_row_tokens=limit)

    assert [each for row in rows for each in row.steps] == steps
    for row in rows:
        whole = list(row.prompt_tokens) + row.response_tokens
        sampled: list[int] = []
        for each, start in zip(row.steps, row.starts, strict=True):
            read = len(each.prompt_tokens)
            assert tuple(whole[:read]) == each.prompt_tokens  # what the engine read
            span = slice(start, start + len(each.action_tokens))
            assert tuple(row.response_tokens[span]) == each.action_tokens
            assert tuple(row.response_logprobs[span]) == each.behavior_logprobs
            sampled += range(start, start + len(each.action_tokens))
        assert [t for t, m in enumerate(row.response_mask) if m] == sampled
        assert len(row.response_mask) == len(row.response_logprobs) == len(row.response_tokens)
