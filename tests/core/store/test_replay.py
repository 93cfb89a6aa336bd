"""One episode part by part: equal to the whole of it."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from apps.long_episode import EPISODE_ID, SCRIPTS, write_long_store
from core.store.conftest import ON_BOTH
from longhaul_core.store import Label, StoreWriter, open_store, queries
from longhaul_core.store.queries import PromptMessage, replay
from longhaul_core.store.queries.replay import LineChange, MessageChange, ReplyReader
from longhaul_core.store.queries.replay.tokens import join_tokens
from longhaul_core.types import Message, Observation, Step
from steps import one_call_step
from store_samples import (
    make_credit,
    make_decisions,
    make_failure,
    make_program,
    make_record,
    make_training_step,
    make_trajectory,
    run_started,
)


def message(text: str, role: str = "user") -> PromptMessage:
    return PromptMessage(role, (text,), (), None, "")  # pyright: ignore[reportArgumentType]


@pytest.fixture
def program(writer: StoreWriter) -> str:
    """An episode of two agents with pictures, tools, and calls without tokens."""
    record = make_record(make_program())
    writer.write([run_started(), record, *make_decisions([record]), make_credit(record)])
    return record.episode_id


@pytest.fixture
def long_chat(store: str, writer: StoreWriter) -> str:
    """An episode of six steps that forgets its two oldest exchanges from the middle on."""
    writer.flush()
    write_long_store(store, num_steps=6)
    return EPISODE_ID


@pytest.fixture(params=["program", "long_chat"])
def episode_id(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_each_step_by_itself_is_that_of_the_whole_episode(
    episode_id: str, session: Session
) -> None:
    whole = queries.get_episode(session, episode_id=episode_id)
    for step in whole.steps:
        alone = replay.get_step(session, episode_id=episode_id, step_index=step.step_index)
        assert alone == step
    with pytest.raises(LookupError, match=f"has {len(whole.steps)} steps, so no step 99"):
        replay.get_step(session, episode_id=episode_id, step_index=99)
    with pytest.raises(LookupError, match="no episode 'none'"):
        replay.get_step(session, episode_id="none", step_index=0)


def test_the_outline_has_the_numbers_of_every_step_and_call(
    episode_id: str, session: Session
) -> None:
    whole = queries.get_episode(session, episode_id=episode_id)
    outline = replay.episode_outline(session, episode_id=episode_id)
    assert outline.summary == whole.summary
    for name in ("action", "reward", "advantage", "action_valid", "trained", "act_call_index"):
        assert list(getattr(outline.steps, name)) == [getattr(s, name) for s in whole.steps]
    shown = [tuple(p.content_hash for p in step.pictures) for step in whole.steps]
    assert list(outline.steps.pictures) == shown
    calls = [(step.step_index, call) for step in whole.steps for call in step.calls]
    assert list(outline.calls.step_index) == [step_index for step_index, _ in calls]
    for name in ("purpose", "agent", "num_prompt_tokens", "generate_seconds", "split_reason"):
        assert list(getattr(outline.calls, name)) == [getattr(call, name) for _, call in calls]


@pytest.mark.parametrize(("first", "stop"), [(0, 99), (1, 2), (2, 99), (5, 3)])
def test_texts_of_some_steps_are_those_of_the_episode(
    episode_id: str, session: Session, first: int, stop: int
) -> None:
    whole = queries.get_episode(session, episode_id=episode_id)
    texts = replay.step_texts(session, episode_id=episode_id, first=first, stop=stop)
    assert [step.step_index for step in texts.steps] == list(range(len(whole.steps)))[first:stop]
    used: set[int] = set()
    for step in texts.steps:
        other = whole.steps[step.step_index]
        assert (step.observation, step.pictures) == (other.observation, other.pictures)
        for call, of_whole in zip(step.calls, other.calls, strict=True):
            used |= set(call.prompt)
            assert tuple(texts.messages[each] for each in call.prompt) == of_whole.messages
            assert (call.reply, call.tool_calls) == (of_whole.reply, of_whole.tool_calls)
            assert call.sampling == of_whole.sampling
            assert (() if call.tools is None else texts.tools[call.tools]) == of_whole.tools
            ids = None if call.tokens is None else call.tokens.ids
            assert ids == (None if of_whole.tokens is None else of_whole.tokens.action_tokens)
    assert set(texts.messages) == used
    last_is_here = bool(texts.steps) and texts.stop == len(whole.steps)
    assert texts.final_observation == (whole.final_observation if last_is_here else None)


def later_prompt(
    changes: Iterable[MessageChange], earlier: Sequence[PromptMessage]
) -> tuple[PromptMessage, ...]:
    """The later prompt, from the earlier one and what changed."""
    later: list[PromptMessage] = []
    for change in changes:
        if change.kind == "kept":
            later += earlier[change.earlier : change.earlier + change.num_messages]
        elif change.kind == "added" and change.message is not None:
            later.append(change.message)
        elif change.kind == "changed":
            before = earlier[change.earlier]
            old = before.text.split("\n")
            lines: list[str] = []
            place = 0
            for kind, num_lines, text in change.lines:
                if kind == "kept":
                    lines += old[place : place + num_lines]
                elif kind == "added":
                    lines += text.split("\n")
                place += num_lines if kind != "added" else 0
            later.append(replace(before, parts=("\n".join(lines), *(change.pictures or ()))))
    return tuple(later)


def test_the_changes_of_a_prompt_applied_to_the_one_before_give_it(
    episode_id: str, session: Session
) -> None:
    whole = queries.get_episode(session, episode_id=episode_id)
    changes = replay.prompt_changes(session, episode_id=episode_id)
    assert len(changes) == sum(len(step.calls) for step in whole.steps)
    for each in changes:
        call = whole.steps[each.step_index].calls[each.call_index]
        earlier: tuple[PromptMessage, ...] = ()
        if each.earlier_step_index is not None and each.earlier_call_index is not None:
            before = whole.steps[each.earlier_step_index].calls[each.earlier_call_index]
            assert (before.agent, before.purpose) == (call.agent, call.purpose)
            earlier = before.messages
        assert later_prompt(each.messages, earlier) == call.messages
        if each.tokens is not None and call.tokens is not None:
            now = sum(change.num_tokens for change in each.tokens if change.kind != "dropped")
            assert now == len(call.tokens.prompt_tokens)
    some = replay.prompt_changes(session, episode_id=episode_id, first=1, stop=2)
    assert some == tuple(each for each in changes if each.step_index == 1)


def test_a_chat_that_forgets_drops_its_oldest_exchanges_and_adds_the_newest(
    long_chat: str, session: Session
) -> None:
    changes = {c.step_index: c for c in replay.prompt_changes(session, episode_id=long_chat)}
    growing = [(c.kind, c.num_messages) for c in changes[2].messages]
    assert growing == [("kept", 4), ("added", 1), ("added", 1)]
    forgetting = [(c.kind, c.num_messages) for c in changes[4].messages]
    assert forgetting == [("kept", 1), *[("dropped", 1)] * 4, ("kept", 3), *[("added", 1)] * 2]
    kinds = [change.kind for change in changes[4].tokens or ()]
    assert kinds == ["kept", "dropped", "kept", "added"]


def test_a_window_in_one_message_is_compared_line_by_line() -> None:
    earlier = [message("Act.", "system"), message("Past:\n> a\n> b\nNow: c\nWhat next?")]
    later = [message("Act.", "system"), message("Past:\n> b\n> c\nNow: d\nWhat next?")]
    kept, changed = replay.message_changes(earlier, later)
    assert (kept.kind, kept.num_messages) == ("kept", 1)
    assert changed == MessageChange(
        kind="changed",
        earlier=1,
        later=1,
        num_messages=1,
        message=None,
        lines=(
            LineChange("kept", 1, ""),
            LineChange("dropped", 1, "> a"),
            LineChange("kept", 1, ""),
            LineChange("dropped", 1, "Now: c"),
            LineChange("added", 2, "> c\nNow: d"),
            LineChange("kept", 1, ""),
        ),
        pictures=(),
    )


MESSAGES = st.lists(
    st.builds(
        message,
        st.lists(st.sampled_from(["a", "b", "c", "", "Now"]), min_size=1, max_size=5).map(
            "\n".join
        ),
        st.sampled_from(["user", "assistant", "system"]),
    ),
    max_size=6,
)


@given(MESSAGES, MESSAGES)
def test_changes_of_any_messages_give_the_later_ones(
    earlier: list[PromptMessage], later: list[PromptMessage]
) -> None:
    changes = replay.message_changes(earlier, later)
    assert later_prompt(changes, earlier) == tuple(later)
    dropped = sum(c.num_messages for c in changes if c.kind in ("kept", "dropped", "changed"))
    assert dropped == len(earlier)


def test_slices_of_a_call_are_its_tokens_and_split_no_character(
    long_chat: str, session: Session
) -> None:
    call = queries.get_episode(session, episode_id=long_chat).steps[2].calls[0]
    assert call.tokens is not None
    ids = call.tokens.prompt_tokens + call.tokens.action_tokens

    def tokens(first: int, stop: int | None) -> replay.CallTokenSlice:
        return replay.call_tokens(
            session, episode_id=long_chat, step_index=2, call_index=0, first=first, stop=stop
        )

    whole = tokens(0, None)
    assert whole.ids == ids
    assert sum(whole.sizes) == len(ids)
    assert whole.reply is not None
    assert "".join(whole.reply.texts) == call.reply
    assert "".join(whole.reply.texts).startswith(SCRIPTS)
    assert whole.reply.policy_entropies == call.tokens.policy_entropies
    reply_begins = len(call.tokens.prompt_tokens)
    within = tokens(reply_begins + 1, reply_begins + 2)  # the second byte of the first letter
    assert (within.first, within.stop) == (reply_begins, reply_begins + 2)
    assert within.texts == (SCRIPTS[0],)
    assert within.reply is not None
    assert within.reply.policy_entropies == (0.0, 0.25)
    for first, stop in pairwise(range(0, len(ids), 300)):
        part = tokens(first, stop)
        assert part.ids == ids[part.first : part.stop]
        assert part.first <= first < stop <= part.stop
    assert tokens(10**6, None).ids == ()
    for step_index, call_index in ((99, 0), (0, 9)):
        with pytest.raises(LookupError, match=f"no call {call_index} of step {step_index}"):
            replay.call_tokens(
                session, episode_id=long_chat, step_index=step_index, call_index=call_index
            )


def test_a_call_that_no_engine_answered_has_no_tokens_to_slice(
    program: str, session: Session
) -> None:
    with pytest.raises(LookupError, match="has no tokens"):
        replay.call_tokens(session, episode_id=program, step_index=0, call_index=3)


def test_the_transcript_has_each_message_once_and_every_reply(
    episode_id: str, session: Session
) -> None:
    whole = queries.get_episode(session, episode_id=episode_id)
    steps = replay.episode_transcript(session, episode_id=episode_id)
    assert [step.observation for step in steps] == [step.observation for step in whole.steps]
    replies = [call.reply for step in steps for call in step.calls]
    assert replies == [call.reply for step in whole.steps for call in step.calls]
    said = [each for step in steps for call in step.calls for each in call.messages]
    assert len(said) == len(set(said))
    read = {each for step in whole.steps for call in step.calls for each in call.messages}
    left_out = read - set(said)
    assert all(
        each.role == "assistant" and any(each.text.endswith(str(reply)) for reply in replies)
        for each in left_out
    )
    assert bool(left_out) == (len(steps) == 6)  # the long chat alone repeats replies


def test_a_transcript_of_a_full_memory_costs_little_more_than_its_texts(
    writer: StoreWriter, session: Session
) -> None:
    said: list[Message] = []
    steps: list[Step] = []
    for index in range(400):
        said.append(Message(role="user", content=f"room {index}"))
        steps.append(
            one_call_step(
                index,
                Observation(text=f"room {index}"),
                messages=tuple(said),
                reply=f"go {index}",
                prompt_tokens=(1,),
                action_tokens=(1,),
                behavior_logprobs=(-0.1,),
            )
        )
        said.append(Message(role="assistant", content=f"I say: go {index}"))
    record = make_record(replace(make_trajectory(), steps=tuple(steps), horizon=len(steps)))
    writer.write([run_started(), record])

    def seconds(ask: Callable[[], object]) -> float:
        began = time.process_time()
        ask()
        return time.process_time() - began

    asked = {"episode_id": record.episode_id}
    texts = min(
        seconds(lambda: replay.step_texts(session, **asked, first=0, stop=len(steps), tokens=False))
        for _ in range(3)
    )
    whole = min(seconds(lambda: replay.episode_transcript(session, **asked)) for _ in range(3))
    assert whole < 5 * texts  # nearly 20 times, if each prompt asks anew


def test_a_credited_episode_has_a_version_that_only_changes_with_it(
    writer: StoreWriter, session: Session
) -> None:
    record = make_record(make_trajectory())
    writer.write([run_started(), record])
    assert replay.outline_version(session, episode_id=record.episode_id) is None
    session.rollback()
    writer.write([*make_decisions([record]), make_credit(record)])
    first = replay.outline_version(session, episode_id=record.episode_id)
    assert first is not None
    assert replay.outline_version(session, episode_id=record.episode_id) == first
    session.rollback()
    remark = Label(
        episode_id=record.episode_id,
        step_index=1,
        name="odd",
        value="yes",
        author="me",
        created_at=1.0,
    )
    writer.write([remark])
    assert replay.outline_version(session, episode_id=record.episode_id) not in (None, first)
    with pytest.raises(LookupError, match="no episode 'none'"):
        replay.outline_version(session, episode_id="none")


def test_neighbours_are_the_group_and_the_groups_beside_it(
    writer: StoreWriter, session: Session
) -> None:
    episodes = [*make_training_step(1), *make_training_step(2)]
    writer.write([run_started(), *episodes])
    failed = make_record(make_failure(sample_index=0), training_step=2, group_index=0, retry=1)
    writer.write([failed])
    near = replay.neighbours(session, episode_id="run/0/train/2/0/1/0")
    assert [(m.sample_index, m.retry, m.failed) for m in near.members] == [
        (0, 0, False),
        (0, 1, True),
        *((sample, 0, False) for sample in (1, 2, 3)),
    ]
    assert near.earlier_group == "run/0/train/1/1/0/0"
    assert near.later_group == "run/0/train/2/1/0/0"
    ends = [
        replay.neighbours(session, episode_id=each)
        for each in ("run/0/train/1/0/0/0", "run/0/train/2/1/0/0")
    ]
    assert (ends[0].earlier_group, ends[1].later_group) == (None, None)


@ON_BOTH
def test_no_question_reads_the_table_of_episodes_from_end_to_end(store: str, program: str) -> None:
    engine = open_store(store)
    asked: list[tuple[str, object]] = []

    def note(*given: object) -> None:
        asked.append((str(given[2]), given[3]))

    with Session(engine) as session:
        event.listen(engine, "before_cursor_execute", note)
        replay.neighbours(session, episode_id=program)
        replay.episode_outline(session, episode_id=program)
        replay.step_texts(session, episode_id=program, first=0, stop=2)
        replay.prompt_changes(session, episode_id=program)
        replay.outline_version(session, episode_id=program)
        event.remove(engine, "before_cursor_execute", note)
    assert asked
    plans = _plans(engine, asked)
    engine.dispose()
    scans = [
        line
        for line in plans
        if (line.startswith("SCAN") and "CONSTANT ROW" not in line) or "Seq Scan" in line
    ]
    assert scans == []


def _plans(engine: Engine, asked: list[tuple[str, object]]) -> list[str]:
    is_sqlite = engine.dialect.name == "sqlite"
    explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
    with engine.connect() as connection:
        if not is_sqlite:  # a small table is read whole, unless no index helps
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return [
            str(row[-1])
            for statement, parameters in asked
            if statement.lstrip().startswith("SELECT")
            for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)  # pyright: ignore[reportArgumentType]
        ]


CONFIG = json.dumps(
    {"actions": {"format": "tags", "require_thinking": False}, "prompt": {"reply_prefix": ""}}
)


@pytest.mark.parametrize(
    ("reply", "action", "judge", "reason"),
    [
        ("go", "go", "parser", "no <action> in the reply"),
        ("<action>fly</action>", "fly", "parser", "not one of the 2 admissible actions"),
        ("<action>go</action>", "go", "environment", "did not accept"),
        ("<action>go</action>", "stay", "unknown", "reads another action"),
        (None, "go", "unknown", "not in the store"),
    ],
)
def test_who_refused_an_action_is_found_out_from_the_reply(
    reply: str | None, action: str, judge: str, reason: str
) -> None:
    reader = ReplyReader(CONFIG, environment="samples/Maze-v0")
    found = reader.why_invalid(reply, action=action, admissible=("go", "wait"))
    assert found.judge == judge
    assert reason in found.reason


def test_what_a_configuration_does_not_say_is_not_guessed() -> None:
    for config in ("{}", "no json", "[]"):
        found = ReplyReader(config, environment="a").why_invalid("x", action="x", admissible=None)
        assert found.judge == "unknown"
        assert "does not say" in found.reason
    own = ReplyReader('{"actions": {"format": "mine:Parser"}}', environment="a")
    assert "mine:Parser" in own.why_invalid("x", action="x", admissible=None).reason
    mixed = json.dumps(
        {"environments": [{"id": "b", "actions": {"format": "plain"}, "prompt": {}}]}
    )
    assert ReplyReader(mixed, environment="b").reading is not None
    assert ReplyReader(mixed, environment="a").reading is None


def joined(*pieces: bytes | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    known = {place: piece for place, piece in enumerate(pieces) if piece is not None}
    return join_tokens(range(len(pieces)), known)


def test_a_character_split_over_tokens_is_one_span() -> None:
    character = "木".encode()
    assert joined(b"a", character[:1], character[1:2], character[2:], b"b") == (
        ("a", "木", "b"),
        (1, 3, 1),
    )
    assert joined(b"ok", character[:2]) == (("ok", r"\xe6\x9c"), (1, 1))
    assert "".join(joined(b"\xff", b"a")[0]) == r"\xffa"


def test_a_token_outside_the_vocabulary_is_shown_by_its_id() -> None:
    assert joined("木".encode()[:1], None, b"a")[0] == (r"\xe6", "⟨1⟩", "a")


def test_marks_and_joined_emoji_stay_with_what_they_modify() -> None:
    assert joined(b"e", "\u0301".encode())[0] == ("e\u0301",)
    assert joined("👩".encode(), "\u200d".encode(), "🚀".encode())[0] == ("👩\u200d🚀",)
    assert joined("👍".encode(), "🏽".encode())[0] == ("👍🏽",)


@given(st.text(), st.lists(st.integers(min_value=0, max_value=60)))
def test_any_cut_of_any_text_reads_as_the_text_and_keeps_every_token(
    text: str, cuts: list[int]
) -> None:
    data = text.encode("utf-8", errors="ignore")
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    texts, sizes = joined(*(data[a:b] for a, b in pairwise(edges)))
    assert "".join(texts) == data.decode()
    assert sum(sizes) == len(edges) - 1
