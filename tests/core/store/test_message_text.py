"""Tests for `longhaul_core.store.message_text`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import StoreWriter, open_store, queries
from longhaul_core.store.message_text import (
    Kind,
    MessageCutter,
    MessageText,
    Source,
    message_numbers,
    message_runs,
    whole_text,
)
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
        kept = cutter.cut(message, number=number)
        known[Source("m", number)] = kept.own_lines
        assert whole_text(kept, texts=known, name="m") == message


def reference(
    kind: Kind, number: int, call_index: int = 0, *, first: int = 0, length: int = 0
) -> int:
    """As `models.MessageRow` describes it; without a length, it is of the whole text."""
    place = {"m": 0, "o": 1, "r": 2}[kind] + (call_index << 2) + (number << 10)
    return place + (first << 27) + (length << 45)


def test_a_window_is_cut_where_its_parts_meet() -> None:
    first = f"You are here.\n{LONG}{' and far' * 25}"
    second = f"{first} too"
    cutter = MessageCutter()
    cutter.show(Source("o", 0), first)
    instruction = "Answer with one action in <action></action>.\n" * 5
    assert cutter.cut(f"{first}\n{instruction}", number=0) == MessageText(
        instruction[:-1],
        f'[{reference("o", 0)},{reference("m", 0)},""]',
    )
    cutter.show(Source("r", 0, 1), "I go north, since that is where the door was.\ngo north")
    cutter.show(Source("o", 1), second)

    kept = cutter.cut(f"Past:\n{first}\n> go north\nNow:\n{second}\n{instruction}", number=1)

    assert kept.own_lines == ""
    assert json.loads(kept.pieces_json or "") == [
        "Past:",
        reference("o", 0),
        "> go north\nNow:",
        reference("o", 1),
        reference("m", 0),
        "",
    ]
    part = instruction.split("\n", maxsplit=1)[0]
    assert json.loads(cutter.cut(f"{part}\n{first}\n{'x ' * 80}", number=2).pieces_json or "")[
        0
    ] == reference("m", 0, first=4 * (len(part) + 1), length=len(part))


def test_a_text_with_a_few_words_around_it_is_a_reference_and_the_words() -> None:
    cutter = MessageCutter()
    seen = f"You are here.\n{LONG}"
    cutter.show(Source("o", 131_071), seen)
    cutter.show(Source("r", 7, 255), "x" * 1001)

    assert cutter.cut(f"Now:\n{seen}\n\nAct.", number=0) == MessageText(
        own_lines="", above="Now:\n", source=reference("o", 131_071), below="\n\nAct."
    )
    assert cutter.cut("x" * 1001, number=1) == MessageText(
        own_lines="", above="", source=reference("r", 7, 255), below=""
    )
    assert cutter.cut(seen, number=2) == MessageText(own_lines=seen)  # short enough to be copied


def test_what_a_reference_has_no_room_for_is_kept_as_it_is() -> None:
    cutter = MessageCutter()
    huge = "y" * 262_144
    cutter.show(Source("o", 131_072), LONG)
    cutter.show(Source("r", 0, 256), LONG)
    cutter.show(Source("o", 0), huge)
    for text_, number in ((LONG, 0), (huge, 1), (f"{huge}\n{LONG}", 131_072)):
        assert cutter.cut(text_, number=number) == MessageText(own_lines=text_)
    cutter.show(Source("o", 1), huge[:-1])
    known = {Source("o", 1): huge[:-1]}
    kept = cutter.cut(f"{huge[:-1]}\n.", number=2)
    assert kept.source is not None
    assert whole_text(kept, texts=known, name="m") == f"{huge[:-1]}\n."


@given(st.lists(st.integers(0, 2**21 - 1), max_size=20))
def test_the_messages_of_a_prompt_come_back_in_order(numbers: list[int]) -> None:
    assert message_numbers(message_runs(numbers)) == numbers


def test_a_prompt_of_everything_before_it_is_one_run() -> None:
    assert message_runs(range(1000)) == f"[{1000 << 21}]"
    assert message_runs([0, 7]) == f"[{1 << 21},{7 + (1 << 21) + (1 << 42)}]"
    assert message_numbers(None) == message_numbers(message_runs([])) == []
    with pytest.raises(StoreError, match="may have messages up to number 2,097,151"):
        message_runs([2**21])


def test_a_message_without_anything_known_is_its_own_lines() -> None:
    cutter = MessageCutter()
    message = f"{LONG}\nshort\n{LONG}?"
    assert cutter.cut(message, number=0) == MessageText(own_lines=message)
    assert cutter.cut("", number=1) == MessageText(own_lines="")


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({}, "repeats Source.*, which is not in the store"),
        ({Source("o", 3): "too short"}, "repeats 8 characters, from 2, of Source.*, which has 9"),
    ],
)
def test_a_piece_of_what_is_not_there_is_an_error(known: dict[Source, str], reason: str) -> None:
    kept = MessageText("", f"[{reference('o', 3, first=2, length=8)}]")
    with pytest.raises(StoreError, match=f"message 2 of e {reason}"):
        whole_text(kept, texts=known, name="message 2 of e")


def window_steps() -> Sequence[Step]:
    """Prompts of three exchanges, with signs that a database could count otherwise."""
    past: list[str] = []
    made: list[Step] = []
    for index in range(6):
        seen = f"Room {index} 你好 \U0001f600 é\n" + "\n".join(
            f"{LONG} {index}.{line}" for line in range(9)
        )
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
        past.append("\n".join(seen.split("\n")[2:5]))  # a part of the observation
    return made


@ON_BOTH
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


@pytest.mark.parametrize("order", ["", " ORDER BY call_index, position"])
def test_sqlite_finds_the_messages_of_a_prompt_by_their_numbers(tmp_path: Path, order: str) -> None:
    store = str(tmp_path / "store.db")
    StoreWriter(store).close()
    asked = "SELECT role FROM prompt_messages WHERE episode_id = 'one' AND step_index = 3"
    engine = open_store(store)
    with engine.connect() as connection:
        plan = [
            row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {asked}{order}"))
        ]
    engine.dispose()

    assert "SEARCH m USING PRIMARY KEY (episode_id=? AND number>? AND number<?)" in plan


def test_no_long_text_of_an_episode_is_stored_twice(
    writer: StoreWriter, engine: Engine, session: Session
) -> None:
    steps = window_steps()
    writer.write([run_started(), make_record(replace(make_trajectory(), steps=tuple(steps)))])

    prompts = sum(len(m.text) for step in steps for m in step.calls[0].messages)
    replies = sum(len(step.calls[0].reply) for step in steps[:-1])  # copied, since they are short
    kept = (
        "SELECT sum(length(own_lines) + length(coalesce(pieces_json, ''))"
        " + length(coalesce(above, '')) + length(coalesce(below, ''))) FROM messages"
    )
    assert session.execute(text(kept)).scalar_one() - replies < prompts / 3
    own = session.scalars(text("SELECT own_lines FROM messages")).all()
    assert sum(each.count(LONG) for each in own) == 1  # the system message's
