"""Tests for `longhaul_core.store.message_text`."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, queries
from longhaul_core.store.message_text import MessageCutter, Source, whole_text
from longhaul_core.types import Message, Observation, Step
from steps import with_call
from store_samples import make_record, make_step, make_trajectory, run_started

LONG = "a line that is long enough to be repeated"
lines = st.sampled_from(["", "a", "> go", LONG, LONG + "!", "é" * 30, "\r" * 24, "x" * 24])
texts = st.one_of(st.lists(lines, max_size=6).map("\n".join), st.text(max_size=80))


@given(st.lists(st.tuples(texts, st.lists(st.integers(0, 9), max_size=5), texts), max_size=6))
def test_any_message_comes_back_exactly(episode: list[tuple[str, list[int], str]]) -> None:
    """Messages repeat earlier texts of the episode, in part, between lines of their own."""
    cutter = MessageCutter()
    known: dict[Source, str] = {}
    for number, (observation, repeated, more) in enumerate(episode):
        known[Source("o", number)] = observation
        cutter.show(Source("o", number), observation)
        before = list(known.values())
        message = "\n".join([*(before[each % len(before)] for each in repeated), more])
        own_lines, pieces_json = cutter.cut(message, number=number)
        known[Source("m", number)] = own_lines
        assert whole_text(own_lines, pieces_json, texts=known, message="m") == message


def test_a_window_is_cut_where_its_parts_meet() -> None:
    first, second = f"You are here.\n{LONG}", f"You are here.\n{LONG} too"
    cutter = MessageCutter()
    cutter.show(Source("o", 0), first)
    instruction = "Answer with one action in <action></action>."
    assert cutter.cut(f"{first}\n{instruction}", number=0) == (
        instruction,
        json.dumps([["o", 0, 0, 1, len(first)], ["m", 0, 0, 1, len(instruction)]]).replace(" ", ""),
    )
    cutter.show(Source("r", 0, 1), "I go north, since that is where the door was.\ngo north")
    cutter.show(Source("o", 1), second)

    own_lines, pieces_json = cutter.cut(
        f"Past:\n{first}\n> go north\nNow:\n{second}\n{instruction}", number=1
    )

    assert own_lines == ""
    assert json.loads(pieces_json or "") == [
        "Past:",
        ["o", 0, 0, 1, len(first)],
        "> go north\nNow:",
        ["o", 1, 0, 1, len(second)],
        ["m", 0, 0, 1, len(instruction)],
    ]


def test_a_message_without_anything_known_is_its_own_lines() -> None:
    cutter = MessageCutter()
    assert cutter.cut(f"{LONG}\nshort\n{LONG}?", number=0) == (f"{LONG}\nshort\n{LONG}?", None)
    assert cutter.cut("", number=1) == ("", None)


@pytest.mark.parametrize("known", [{}, {Source("o", 3): "too short"}])
def test_a_piece_of_what_is_not_there_is_an_error(known: dict[Source, str]) -> None:
    with pytest.raises(
        StoreError, match=r"message 2 of e repeats 10 characters, from 1, of Source"
    ):
        whole_text("", '[["o",3,0,1,10]]', texts=known, message="message 2 of e")


def window_steps() -> Sequence[Step]:
    """Prompts of three exchanges, with signs that a database could count otherwise."""
    past: list[str] = []
    made: list[Step] = []
    for index in range(6):
        seen = f"Room {index} 你好 \U0001f600 é\n{LONG} {index}"
        shown = "\n".join(["Past:", *past[-3:], "Now:", seen])
        reply = f"I have seen room {index} before, so north it is.\n<action>{index}</action>"
        history = [
            Message(role="system", content=f"You walk.\n{LONG}"),
            *(Message(role="assistant", content=step.calls[0].reply) for step in made),
            Message(role="user", content=shown),
        ]
        step = with_call(make_step(index), messages=tuple(history), reply=reply)
        made.append(replace(step, observation=Observation(text=seen)))
        past.append(f"{seen}\n> {index}")
    return made


def test_sql_puts_prompts_together_as_they_were_composed(
    writer: StoreWriter, session: Session
) -> None:
    steps = window_steps()
    record = make_record(replace(make_trajectory(), steps=tuple(steps)))
    writer.write([run_started(), record])

    rows = session.execute(
        text("SELECT step_index, role, content FROM prompt_messages ORDER BY step_index, position")
    )
    composed = [
        (step.index, message.role, message.content)
        for step in steps
        for message in step.calls[0].messages
    ]
    assert [tuple(row) for row in rows] == composed
    episode = queries.get_episode(session, episode_id=record.episode_id)
    shown = [(s.step_index, m.role, m.text) for s in episode.steps for m in s.calls[0].messages]
    assert shown == composed
    found = text("SELECT count(*) FROM episode_messages WHERE content LIKE '%Room 5%'")
    assert session.scalar(found) == 1


def test_no_text_of_an_episode_is_stored_twice(
    writer: StoreWriter, engine: Engine, session: Session
) -> None:
    steps = window_steps()
    writer.write([run_started(), make_record(replace(make_trajectory(), steps=tuple(steps)))])

    prompts = sum(len(m.text) for step in steps for m in step.calls[0].messages)
    kept = "SELECT sum(length(own_lines) + length(coalesce(pieces_json, ''))) FROM messages"
    assert session.execute(text(kept)).scalar_one() < prompts / 3
    own = session.scalars(text("SELECT own_lines FROM messages")).all()
    assert sum(each.count(LONG) for each in own) == 1  # the system message's
