"""Tests for `longhaul_core.store.writer`."""

import json
import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.errors import StoreError
from longhaul_core.store import (
    CallCredit,
    EpisodeRecord,
    Evaluation,
    GroupDecision,
    Heartbeat,
    Label,
    LossInput,
    LossInputs,
    Metrics,
    PanelTasks,
    PolicyVersion,
    Record,
    RunEnded,
    StoreWriter,
    TokenPieces,
    open_store,
    queries,
)
from longhaul_core.store.addresses import is_temporary
from longhaul_core.store.packing import content_hash, unpack_logprobs
from longhaul_core.store.queries import StoredPicture
from longhaul_core.store.rows import task_hash
from longhaul_core.types import (
    MediaType,
    Message,
    Observation,
    Picture,
    Split,
    Step,
    Task,
    Tool,
)
from pictures import png
from steps import sampled_of, with_call
from store_samples import (
    as_stored,
    make_audit,
    make_call,
    make_credit,
    make_decisions,
    make_failure,
    make_loss_input,
    make_program,
    make_record,
    make_step,
    make_task,
    make_training_step,
    make_trajectory,
    make_values,
    one_of_each,
    run_started,
)

Counts = Callable[[], dict[str, int]]


def test_the_state_that_an_episode_ended_in_is_kept(writer: StoreWriter, session: Session) -> None:
    ends = (
        Observation(text="It is dark."),
        Observation(text="It is dark.", anchor_state="cellar"),
    )
    records = [
        make_record(
            replace(make_trajectory(sample_index=sample_index), final_observation=end),
            group_index=0,
        )
        for sample_index, end in enumerate(ends)
    ]

    writer.write(
        [run_started(), *records, make_record(make_failure(sample_index=2), group_index=0)]
    )
    writer.write(make_decisions(records))

    numbers = queries.episodes_of_update(session, run_id="run", training_step=1)
    assert [(episode.success, episode.final_anchor_hash) for episode in numbers] == [
        (True, content_hash("It is dark.")),
        (True, content_hash("cellar")),
        (None, None),
    ]


@ON_BOTH
def test_what_is_written_comes_back_whole(writer: StoreWriter, session: Session) -> None:
    made = make_trajectory(rewards=(0.0, -0.25, 1.0))
    steps = tuple(with_call(step, policy_version=7 + step.index) for step in made.steps)
    trajectory = replace(made, steps=steps)
    record = make_record(trajectory, phase="validation", training_step=3, group_index=2)

    writer.write([run_started(), record])

    episode = queries.get_episode(session, episode_id="run/0/validation/3/2/0/0")
    for stored, step in zip(episode.steps, trajectory.steps, strict=True):
        [call], [made_call], tokens = stored.calls, step.calls, sampled_of(step)
        assert call.messages == as_stored(made_call.messages)
        assert call.tokens is not None
        assert call.tokens.prompt_tokens == tokens.prompt_tokens
        assert call.tokens.action_tokens == tokens.action_tokens
        assert call.tokens.behavior_logprobs == pytest.approx(tokens.behavior_logprobs, abs=1e-7)
        assert call.policy_version == tokens.policy_version
        assert call.reply == made_call.reply
        assert call.num_cached_tokens == made_call.num_cached_tokens
        assert call.queue_seconds == made_call.queue_seconds
        assert call.generate_seconds == made_call.generate_seconds
        assert stored.observation == step.observation.text
        assert stored.anchor_state == step.observation.anchor_state
        assert stored.admissible_actions == step.observation.admissible_actions
        assert stored.action == step.action
        assert stored.action_valid == step.action_valid
        assert stored.reward == step.reward
        assert stored.environment_seconds == step.environment_seconds
        assert not stored.trained
        assert stored.advantage is None
    assert episode.seed == trajectory.seed
    assert episode.final_observation == "You are outside."
    assert episode.summary.episode_return == 0.75
    assert episode.summary.stop_reason == "task_solved"
    assert episode.summary.terminated is True
    assert episode.summary.truncated is False
    assert episode.summary.horizon == 50


@ON_BOTH
def test_credit_is_kept_with_both_parts_of_the_advantage_apart(
    writer: StoreWriter, session: Session
) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    credit = replace(
        make_credit(record, episode_advantage=-0.5),
        values=(0.2, 0.4),
        shaped_rewards=(-0.25, 0.75),
        returns_to_go=(0.5, 0.875),
        loss_weights=(0.75, 0.25),
        calls=(
            CallCredit(
                step_index=0,
                call_index=0,
                advantage=-0.5,
                loss_weight=0.75,
                policy_logprobs=(-1.0, -1.5, -2.0, -2.5, -3.0, -3.5),
                policy_entropies=(0.0, 0.25, 1.5, 3.0, 0.693, 11.9),
                split_reason="first_step",
            ),
            CallCredit(
                step_index=1,
                call_index=0,
                advantage=-0.4,
                loss_weight=0.25,
                policy_logprobs=(-4.0, -4.5, -5.0, -5.5, -6.0, -6.5),
            ),
        ),
        optimizer_step_index=1,
    )

    writer.write([run_started(), record, credit])

    episode = queries.get_episode(session, episode_id=record.episode_id)
    first, second = episode.steps
    assert (first.episode_advantage, first.step_advantage, first.advantage) == (-0.5, 0.0, -0.5)
    assert (second.episode_advantage, second.step_advantage, second.advantage) == (-0.5, 0.1, -0.4)
    assert (first.shaped_reward, second.shaped_reward) == (-0.25, 0.75)
    assert (first.return_to_go, second.return_to_go) == (0.5, 0.875)
    assert (first.value, second.value) == (0.2, 0.4)
    assert (first.loss_weight, second.loss_weight) == (0.75, 0.25)
    [one], [other] = first.calls, second.calls
    assert (one.split_reason, other.split_reason) == ("first_step", None)
    assert (one.advantage, other.advantage) == (-0.5, -0.4)
    assert (one.loss_weight, other.loss_weight) == (0.75, 0.25)
    assert one.tokens is not None
    assert other.tokens is not None
    assert one.tokens.policy_logprobs == (-1.0, -1.5, -2.0, -2.5, -3.0, -3.5)
    assert other.tokens.policy_logprobs == (-4.0, -4.5, -5.0, -5.5, -6.0, -6.5)
    assert one.tokens.behavior_logprobs != one.tokens.policy_logprobs
    assert one.tokens.policy_entropies == pytest.approx(
        (0.0, 0.25, 1.5, 3.0, 0.693, 11.9), abs=4e-3
    )
    assert other.tokens.policy_entropies is None  # its credit had none
    assert first.trained
    assert second.trained
    assert episode.summary.trained
    assert episode.summary.episode_advantage == -0.5
    assert episode.summary.optimizer_step_index == 1


@ON_BOTH
@pytest.mark.parametrize("name", ['say "NULL"', "a\\", "{a,b}", "NULL", "\U0001f600\n\t"])
def test_credit_reaches_its_episode_whatever_signs_texts_are_of(
    writer: StoreWriter, session: Session, name: str
) -> None:
    record = make_record(make_trajectory(), run_id=name)
    made = make_credit(record)
    credit = replace(
        made,
        advantages=(1e-300, 2.0**0.5, *made.advantages[2:]),
        calls=tuple(replace(call, split_reason=name) for call in made.calls),
    )

    writer.write([run_started(name), record, credit])

    episode = queries.get_episode(session, episode_id=record.episode_id)
    assert [step.advantage for step in episode.steps] == list(credit.advantages)
    assert {call.split_reason for step in episode.steps for call in step.calls} == {name}


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        ("calls", "call_index < 0"),  # copied
        ("calls", "advantage IS NULL"),  # set from arrays
        ("call_tokens", "policy_logprobs IS NULL"),  # likewise, and sent with others
    ],
)
def test_what_postgresql_refuses_of_many_rows_is_an_error_of_the_store(
    empty_postgresql: str, table: str, condition: str
) -> None:
    record = make_record(make_trajectory())
    with StoreWriter(empty_postgresql) as writer:
        writer.write([run_started()])
        engine = open_store(empty_postgresql)
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {table} ADD CONSTRAINT odd CHECK ({condition})"))

        with pytest.raises(StoreError, match='constraint "odd"') as refused:
            writer.write([record, make_credit(record)])

        assert not is_temporary(refused.value)
        with engine.begin() as connection:
            assert connection.scalar(text("SELECT count(*) FROM episodes")) == 0
            connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT odd"))
        engine.dispose()
        writer.write([record, make_credit(record)])  # the connection is as good as before


@ON_BOTH
def test_each_token_has_its_numbers_in_sql(writer: StoreWriter, session: Session) -> None:
    """The view reads packed numbers bit by bit; of each kind that there is, one."""
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    credit = make_credit(record)
    logprobs = (-0.1, 0.0, -(2.0**-149), -(2.0**127), -math.inf, math.nan)
    entropies = (0.7, 0.0, 2.0**-24, 2.0**-14, math.inf, math.nan)
    first, second = credit.calls
    calls = (
        replace(first, policy_logprobs=logprobs, policy_entropies=entropies),
        replace(second, policy_logprobs=None, policy_entropies=None),
    )
    writer.write([run_started(), record, replace(credit, calls=calls)])

    rows = session.execute(
        text(
            "SELECT token_index, policy_logprob, policy_entropy FROM token_logprobs "
            "ORDER BY step_index, token_index"
        )
    ).all()

    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5] * 2
    wide = [None if math.isnan(each) else float(np.float32(each)) for each in logprobs]
    half = [None if math.isnan(each) else float(np.float16(each)) for each in entropies]
    assert [row[1] for row in rows[:6]] == wide
    assert [row[2] for row in rows[:6]] == half
    assert {(row[1], row[2]) for row in rows[6:]} == {(None, None)}


@ON_BOTH
def test_calls_of_a_program_come_back_whole(writer: StoreWriter, session: Session) -> None:
    """Of every purpose and agent, with and without tokens, pictures and tools; and a bare step."""
    made = make_program()
    record = make_record(made)
    credit, read = make_credit(record), make_loss_input(record)
    writer.write([run_started(), record, *make_decisions([record]), credit, read])

    episode = queries.get_episode(session, episode_id=record.episode_id)

    for stored, step in zip(episode.steps, made.steps, strict=True):
        assert len(stored.calls) == len(step.calls)
        assert stored.pictures == tuple(
            StoredPicture(p.content_hash, p.media_type) for p in step.observation.pictures
        )
        for call, written in zip(stored.calls, step.calls, strict=True):
            assert (call.purpose, call.agent, call.model) == (
                written.purpose,
                written.agent,
                written.model,
            )
            assert call.messages == as_stored(written.messages)
            assert (call.tools, call.tool_calls) == (written.tools, written.tool_calls)
            assert (call.conversation, call.continuation) == (
                written.conversation,
                written.continuation,
            )
            assert (call.sampling, call.cost_usd) == (written.sampling, written.cost_usd)
            assert call.finish_reason == written.finish_reason.value
            assert (call.trained, call.credit_share) == (written.trained, written.credit_share)
            assert call.credited_by == written.credited_by
            if written.sampled is None:
                assert call.tokens is call.policy_version is call.num_action_tokens is None
            else:
                assert call.tokens is not None
                assert call.tokens.prompt_tokens == written.sampled.prompt_tokens
                assert call.tokens.action_tokens == written.sampled.action_tokens
    assert episode.summary.num_calls == 5
    plan, act, remember, judge = episode.steps[0].calls
    assert episode.steps[0].act == act
    assert (plan.advantage, act.advantage) == (0.25, 0.5)
    assert remember.advantage is judge.advantage is None
    assert (episode.steps[2].act, episode.steps[2].calls) == (None, ())
    [end] = made.final_observation.pictures
    assert episode.final_pictures == (StoredPicture(end.content_hash, end.media_type),)
    assert queries.get_media(session, content_hash=end.content_hash).data == end.data
    without = queries.get_episode(session, episode_id=record.episode_id, tokens=False)
    assert {call.tokens for step in without.steps for call in step.calls} == {None}
    assert queries.violations(session, run_id="run") == []


def test_a_prompt_shares_its_beginning_with_the_last_one_of_its_agent_and_purpose(
    writer: StoreWriter, session: Session
) -> None:
    record = make_record(make_program())
    writer.write([run_started(), record])

    shared = session.execute(
        text(
            "SELECT purpose, step_index, num_shared_prompt_tokens "
            "FROM calls ORDER BY step_index, call_index"
        )
    )
    assert [tuple(row) for row in shared] == [
        ("plan", 0, 0),
        ("act", 0, 0),  # not with the plan's, though it is equal
        ("remember", 0, 0),
        ("judge", 0, None),
        ("act", 1, 3),
    ]


def test_a_conversation_shares_with_itself_and_begins_with_what_its_agent_read_last(
    writer: StoreWriter, session: Session
) -> None:
    """Of two conversations that take turns, a third that forks, and another agent's."""
    prompts: list[tuple[str, int, tuple[int, ...]]] = [
        ("", 0, (1, 2, 3)),
        ("", 1, (1, 7, 8)),
        ("", 0, (1, 2, 3, 4)),
        ("", 1, (1, 7, 8, 9)),
        ("", 2, (1, 7, 8, 5)),
        ("judge", 3, (1, 7, 8, 5)),
    ]
    made = make_program()
    calls = tuple(
        make_call("act", agent=agent, conversation=conversation, prompt=prompt)
        for agent, conversation, prompt in prompts
    )
    record = make_record(replace(made, steps=(replace(made.steps[0], calls=calls),)))
    writer.write([run_started(), record])

    shared = session.scalars(text("SELECT num_shared_prompt_tokens FROM calls ORDER BY call_index"))
    assert shared.all() == [0, 1, 3, 3, 3, 0]
    [step] = queries.get_episode(session, episode_id=record.episode_id).steps
    assert [call.tokens and call.tokens.prompt_tokens for call in step.calls] == [
        prompt for _, _, prompt in prompts
    ]


def test_a_list_of_tools_is_stored_once_for_all_calls_of_all_episodes(
    writer: StoreWriter, session: Session, counts: Counts
) -> None:
    tools = tuple(Tool(name=f"tool-{n}", description="d" * 200) for n in range(20))
    other = tools[:5]
    made = make_program()
    steps = tuple(
        replace(made.steps[0], index=n, calls=(make_call("act", tools=offered),))
        for n, offered in enumerate((tools, other, tools, (), tools))
    )
    records = [
        make_record(replace(make_program(sample_index=n), steps=steps), group_size=2)
        for n in range(2)
    ]
    writer.write([run_started(), *records])

    assert (counts()["tool_lists"], counts()["episode_tools"]) == (2, 4)
    for record in records:
        found = queries.get_episode(session, episode_id=record.episode_id)
        assert [call.tools for step in found.steps for call in step.calls] == [
            tools, other, tools, (), tools,
        ]  # fmt: skip
    assert queries.violations(session, run_id="run") == []
    seen = session.execute(
        text("SELECT DISTINCT tools_json FROM call_detail WHERE tools_json IS NOT NULL")
    )
    assert len(seen.all()) == 2


def test_thoughts_and_tool_calls_of_a_reply_are_stored_once(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started(), make_record(make_program())])

    stored = session.execute(
        text("SELECT reasoning, tool_calls_json FROM messages WHERE role = 'assistant'")
    )
    shown = session.execute(
        text("SELECT reasoning, tool_calls_json FROM prompt_messages WHERE role = 'assistant'")
    )
    asked = '[{"id": "call-1", "name": "look", "arguments": "{\\"at\\": \\"map\\"}"}]'
    assert [tuple(row) for row in stored] == [(None, None)]
    assert [tuple(row) for row in shown] == [("Where does this room lead to?", asked)]


def test_tasks_of_other_data_are_others_and_one_without_has_the_hash_it_had(
    writer: StoreWriter, session: Session, counts: Counts
) -> None:
    bare = make_task()
    tasks = [bare, replace(bare, data='{"n": 1}'), replace(bare, data='{"n": 2}')]
    records = [
        make_record(make_trajectory(task=task), group_index=index)
        for index, task in enumerate(tasks)
    ]
    writer.write([run_started(), *records])

    assert task_hash(bare) == "d6c131b55bffdd6d67e0a466da39699e"
    assert counts()["tasks"] == 3
    found = [queries.get_episode(session, episode_id=record.episode_id) for record in records]
    assert [episode.task_data for episode in found] == [task.data for task in tasks]


def test_the_messages_of_a_conversation_are_side_by_side(
    writer: StoreWriter, session: Session
) -> None:
    """However many others take turns with it, its prompt is one run of messages."""
    histories = [[Message(role="user", content=f"begin {name}")] for name in range(3)]
    made = make_program()
    steps: list[Step] = []
    for index in range(30):
        history = histories[index % 3]
        call = make_call("act", conversation=index % 3, messages=tuple(history))
        steps.append(replace(made.steps[0], index=index, calls=(call,)))
        history.append(Message(role="assistant", content=f"reply {index}"))
        history.append(Message(role="user", content=f"result {index}"))
    record = make_record(replace(made, steps=tuple(steps)))
    writer.write([run_started(), record])

    prompts = session.scalars(text("SELECT messages_json FROM calls")).all()
    assert {len(json.loads(prompt)) for prompt in prompts} == {1}
    found = queries.get_episode(session, episode_id=record.episode_id)
    assert [call.messages for step in found.steps for call in step.calls] == [
        as_stored(step.calls[0].messages) for step in steps
    ]


def test_credit_of_a_call_that_is_not_there_is_refused(writer: StoreWriter) -> None:
    record = make_record(make_program())
    credit = make_credit(record)
    stray = replace(credit.calls[-1], call_index=5)
    writer.write([run_started(), record])

    with pytest.raises(StoreError, match=r"call 5 of step 1, but episode .* has no such call"):
        writer.write([replace(credit, calls=(*credit.calls, stray))])
    with pytest.raises(ValueError, match="one entry per trained call, in the order"):
        replace(credit, calls=credit.calls[::-1])


@ON_BOTH
def test_a_picture_is_written_once_and_needs_its_bytes_the_first_time(
    writer: StoreWriter, session: Session, counts: Counts
) -> None:
    data = png("red")
    shown = Picture.of(data)
    known = Picture(media_type="image/png", content_hash=shown.content_hash)

    def seen(picture: Picture, sample_index: int) -> EpisodeRecord:
        step = replace(make_step(0), observation=Observation(text="", pictures=(picture,)))
        outcome = replace(make_trajectory(sample_index=sample_index), steps=(step,))
        return make_record(outcome)

    writer.write([run_started()])
    with pytest.raises(StoreError, match=f"picture {shown.content_hash} is not in the store"):
        writer.write([seen(known, 0)])
    writer.write([seen(shown, 0)])
    writer.write([seen(known, 1), seen(shown, 2)])

    assert (counts()["media"], counts()["episode_media"]) == (1, 3)
    media = queries.get_media(session, content_hash=shown.content_hash)
    assert (media.media_type, media.data) == ("image/png", data)
    with pytest.raises(LookupError, match="there is no picture 'ff'"):
        queries.get_media(session, content_hash="ff")


def test_a_picture_of_another_kind_is_refused(writer: StoreWriter) -> None:
    svg = Picture.of(b"<svg/>", media_type=cast("MediaType", "image/svg+xml"))
    step = replace(make_step(0), observation=Observation(text="", pictures=(svg,)))
    record = make_record(replace(make_trajectory(), steps=(step,)))

    with pytest.raises(StoreError, match=r"type 'image/svg\+xml': the store keeps image/png"):
        writer.write([run_started(), record])


def test_a_message_of_one_part_that_is_text_is_kept_as_a_text(
    writer: StoreWriter, session: Session
) -> None:
    step = with_call(make_step(0), messages=(Message(role="user", content=("go",)),))
    writer.write([run_started(), make_record(replace(make_trajectory(), steps=(step,)))])

    [row] = session.execute(text("SELECT own_lines, pieces_json, parts_json FROM messages"))
    assert tuple(row) == ("go", None, None)


def test_a_second_write_of_everything_changes_nothing(
    writer: StoreWriter, engine: Engine, counts: Counts
) -> None:
    def everything() -> list[str]:
        # Those who follow the run are told of every write, a second one too: they look once more
        # than they must. What the retry of a lost answer changed is not told apart from it.
        following = ("changes", "commits")
        with engine.connect() as connection:
            return [
                str(sorted(map(str, connection.execute(text(f"SELECT * FROM {table}")))))
                for table in counts()
                if table not in following
            ]

    writer.write(one_of_each())
    before, rows_before = everything(), counts()

    writer.write(one_of_each())
    for record in one_of_each():
        writer.write([record])

    assert counts() | {"changes": 0} == rows_before | {"changes": 0}
    assert min(rows_before.values()) > 0
    assert everything() == before


@ON_BOTH
def test_a_record_given_twice_in_one_batch_is_written_once(
    writer: StoreWriter, counts: Counts
) -> None:
    writer.write([*one_of_each(), *one_of_each()])

    rows = counts()
    assert rows["episodes"] == 10
    assert rows["steps"] == sum(range(2, 6)) * 2 + 1 + 3
    assert rows["calls"] == sum(range(2, 6)) * 2 + 1 + 5
    assert rows["media"] == rows["episode_media"] == 3


@ON_BOTH
def test_nothing_of_a_batch_is_written_if_one_record_cannot_be(
    writer: StoreWriter, counts: Counts
) -> None:
    broken = make_record(
        make_trajectory(task=make_task(5), rewards=(0.0, math.nan)), training_step=9
    )

    with pytest.raises(
        StoreError, match=r"episodes\.episode_return \(.*run/0/train/9/0/0/0.* got nan"
    ):
        writer.write([run_started(), *make_training_step(1), broken])

    assert set(counts().values()) == {0}


def test_records_of_a_run_that_was_never_started_are_refused(writer: StoreWriter) -> None:
    with pytest.raises(StoreError, match="run 'run' is not in the store: write its RunStarted"):
        writer.write(make_training_step(1))
    writer.write([run_started()])
    with pytest.raises(StoreError, match="attempt 3 of run 'run' is not in the store"):
        writer.write(make_training_step(1, attempt=3))


def test_credit_of_an_unknown_episode_is_refused(writer: StoreWriter) -> None:
    record = make_record(make_trajectory())
    writer.write([run_started()])

    with pytest.raises(StoreError, match="episode run/0/train/1/0/0/0 is not in the store"):
        writer.write([make_credit(record)])


def test_credit_of_another_length_is_refused(writer: StoreWriter) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    longer = make_record(make_trajectory(rewards=(0.0, 0.0, 1.0)))
    writer.write([run_started(), record])

    with pytest.raises(StoreError, match=r"credit for 3 steps, but episode .* has 2 steps"):
        writer.write([make_credit(longer)])


def test_an_audit_is_kept_with_what_it_found(writer: StoreWriter, session: Session) -> None:
    later = make_audit(audited_at=1_760_000_900.0)
    clean = replace(later, findings=(), rules=(), training_steps=())

    writer.write([run_started(), make_audit(), clean])

    newest, first = queries.list_audits(session, run_id="run")
    assert (newest.audited_at, newest.first_training_step, newest.num_findings) == (
        1_760_000_900.0,
        None,
        0,
    )
    kept = make_audit()
    assert (first.first_training_step, first.last_training_step) == (1, 2)
    assert (first.num_steps, first.num_findings) == (36, 1)
    assert (first.rules, first.not_checked, first.findings) == (
        kept.rules,
        kept.not_checked,
        kept.findings,
    )


def test_a_consumed_step_is_kept_as_the_loss_read_it(writer: StoreWriter, session: Session) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)), group_index=3, retry=1)
    consumed = LossInputs(
        run_id="run",
        attempt=0,
        training_step=4,
        optimizer_step_index=2,
        rank=4,
        micro_batch=5,
        rows=(
            LossInput(
                training_step=1,
                group_index=3,
                sample_index=0,
                retry=1,
                step_index=1,
                call_index=0,
                row_index=6,
                num_tokens=7,
                advantage_low=-0.5,
                advantage_high=0.25,
                weight_low=0.125,
                weight_high=0.75,
                old_logprob_sum=-3.5,
            ),
            LossInput(
                training_step=1,
                group_index=3,
                sample_index=0,
                retry=1,
                step_index=0,
                call_index=0,
                row_index=7,
                num_tokens=0,
                advantage_low=None,
                advantage_high=None,
                weight_low=None,
                weight_high=None,
                old_logprob_sum=0.0,
            ),
        ),
    )

    writer.write([run_started(), record, consumed])

    rows = session.execute(
        text(
            "SELECT episode_id, step_index, training_step, optimizer_step_index, rank, "
            "micro_batch, row_index, num_tokens, advantage_low, advantage_high, weight_low, "
            "weight_high, old_logprob_sum FROM loss_inputs ORDER BY step_index DESC"
        )
    ).all()
    assert [tuple(row) for row in rows] == [
        ("run/0/train/1/3/0/1", 1, 4, 2, 4, 5, 6, 7, -0.5, 0.25, 0.125, 0.75, -3.5),
        ("run/0/train/1/3/0/1", 0, 4, 2, 4, 5, 7, 0, None, None, None, None, 0.0),
    ]


def test_a_step_that_is_consumed_twice_has_two_rows_and_one_that_is_not_has_none(
    writer: StoreWriter, session: Session
) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 0.0, 1.0)))
    once, twice = make_loss_input(record), make_loss_input(record, micro_batch=1)
    writer.write([run_started(), record, *make_decisions([record]), make_credit(record)])
    writer.write([replace(once, rows=once.rows[:2])])
    writer.write([replace(twice, rows=twice.rows[:1])])

    seen = session.execute(
        text(
            "SELECT step_index, micro_batch, num_tokens FROM call_loss_inputs "
            "WHERE run_id = 'run' ORDER BY step_index, micro_batch"
        )
    )
    assert [tuple(row) for row in seen] == [(0, 0, 6), (0, 1, 6), (1, 0, 6), (2, None, None)]


def test_loss_inputs_that_are_not_in_the_store_are_refused(writer: StoreWriter) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    longer = make_record(make_trajectory(rewards=(0.0, 0.0, 1.0)))
    writer.write([run_started()])

    with pytest.raises(StoreError, match=r"not in the store: run/0/train/1/0/0/0"):
        writer.write([make_loss_input(record)])
    writer.write([record])
    with pytest.raises(StoreError, match=r"call 0 of step 2, but episode .* its 2 steps"):
        writer.write([make_loss_input(longer)])


def test_a_consumed_number_that_is_not_finite_is_refused(
    writer: StoreWriter, counts: Counts
) -> None:
    record = make_record(make_trajectory(rewards=(1.0,)))
    consumed = make_loss_input(record)
    broken = replace(consumed, rows=(replace(consumed.rows[0], advantage_high=math.nan),))

    with pytest.raises(StoreError, match=r"loss_inputs\.advantage_high \(.*step_index 0.* got nan"):
        writer.write([run_started(), record, broken])

    assert counts()["episodes"] == 0


def test_a_consumed_step_without_tokens_has_no_advantage() -> None:
    [row] = make_loss_input(make_record(make_trajectory(rewards=(1.0,)))).rows
    with pytest.raises(ValueError, match="None exactly when num_tokens is 0"):
        replace(row, num_tokens=0)
    with pytest.raises(ValueError, match="None exactly when num_tokens is 0"):
        replace(row, weight_low=None)


def test_a_failed_episode_is_kept_with_its_cause_and_never_scored(
    writer: StoreWriter, session: Session
) -> None:
    first_try = make_record(make_failure(), retry=0)
    second_try = make_record(make_trajectory(), retry=1)
    writer.write([run_started(), first_try, second_try])

    failed = queries.get_episode(session, episode_id=first_try.episode_id)
    assert failed.summary.failed
    assert failed.summary.failure_cause == "environment_timeout"
    assert failed.summary.episode_return is None
    assert failed.summary.success is None
    assert len(failed.steps) == 1
    [point] = queries.training_curve(session, run_id="run")
    assert (point.num_episodes, point.num_failed_episodes) == (1, 1)
    assert point.mean_return == 1.5


def test_what_a_person_played_is_in_no_curve(writer: StoreWriter, session: Session) -> None:
    trained = make_record(make_trajectory())
    played = make_record(make_trajectory(sample_index=1), phase="play")
    writer.write([run_started(), trained, played])

    assert [each.phase for each in queries.training_curve(session, run_id="run")] == ["train"]
    assert queries.training_curve(session, run_id="run", phase="play") == []


def test_messages_that_repeat_are_stored_once(writer: StoreWriter, counts: Counts) -> None:
    # 28 steps in 8 episodes, every prompt with the same system message and its own user message
    writer.write([run_started(), *make_training_step(1)])

    assert counts()["steps"] == 28
    assert counts()["messages"] == 8 + 28


def test_a_prompt_that_grows_is_stored_by_what_it_adds(
    writer: StoreWriter, session: Session
) -> None:
    # Full history: the prompt of step t is 100 (t + 1) tokens, each the last one's continuation.
    history = tuple(range(1_000, 4_000))
    base = make_trajectory(rewards=(0.0,) * 30)
    trajectory = replace(
        base,
        steps=tuple(
            with_call(step, prompt_tokens=history[: 100 * (step.index + 1)]) for step in base.steps
        ),
    )
    record = make_record(trajectory)

    writer.write([run_started(), record])

    num_bytes = session.execute(text("SELECT sum(length(tokens)) FROM call_tokens")).scalar_one()
    assert num_bytes < 4 * 3_000
    episode = queries.get_episode(session, episode_id=record.episode_id)
    assert [
        step.calls[0].tokens and step.calls[0].tokens.prompt_tokens for step in episode.steps
    ] == [sampled_of(step).prompt_tokens for step in trajectory.steps]


@ON_BOTH
def test_text_that_sql_cannot_hold_is_made_visible(writer: StoreWriter, session: Session) -> None:
    odd = "a\x00b \ud83d 你好 \U0001f600"
    step = replace(
        with_call(make_step(0), reply=odd, messages=(Message(role="user", content=odd),)),
        action=odd,
        observation=Observation(text=odd, admissible_actions=(odd,)),
    )
    record = make_record(replace(make_trajectory(), steps=(step,)))

    writer.write([run_started(), record])

    [stored] = queries.get_episode(session, episode_id=record.episode_id).steps
    [call] = stored.calls
    assert call.reply == "a\u2400b \ufffd 你好 \U0001f600"
    assert call.messages[0].text == call.reply == stored.observation == stored.action
    assert call.tokens is not None
    assert call.tokens.action_tokens == sampled_of(step).action_tokens


@ON_BOTH
def test_a_resumed_attempt_takes_back_what_the_checkpoint_does_not_hold(
    writer: StoreWriter, session: Session, counts: Counts
) -> None:
    for training_step in (1, 2, 3):
        episodes = make_training_step(training_step)
        writer.write(
            [
                run_started(),
                *episodes,
                *make_decisions(episodes),
                *(make_credit(episode) for episode in episodes),
                Metrics(run_id="run", attempt=0, training_step=training_step, values={"loss": 1.0}),
            ]
        )
    before = counts()

    writer.write([run_started(attempt=1, resumes_after=2)])
    again = make_training_step(3, attempt=1)
    writer.write(
        [
            *again,
            *make_decisions(again),
            *(make_credit(episode) for episode in again),
            Metrics(run_id="run", attempt=1, training_step=3, values={"loss": 2.0}),
        ]
    )

    assert counts()["episodes"] == before["episodes"] + 8
    curve = queries.training_curve(session, run_id="run")
    assert [(point.training_step, point.num_episodes) for point in curve] == [
        (1, 8),
        (2, 8),
        (3, 8),
    ]
    [loss] = queries.metric_series(session, run_id="run").values()
    assert [(point.training_step, point.value) for point in loss] == [(1, 1.0), (2, 1.0), (3, 2.0)]
    lost = queries.get_episode(session, episode_id="run/0/train/3/0/0/0")
    assert lost.summary.rolled_back
    assert not lost.summary.trained
    assert not any(step.trained for step in lost.steps)
    assert lost.steps[0].advantage == 0.5
    assert queries.get_episode(session, episode_id="run/0/train/2/0/0/0").summary.trained
    assert queries.violations(session, run_id="run") == []


def decide(record: EpisodeRecord, *, at: int, discarded: bool = False) -> GroupDecision:
    """The decision that training step `at` took on the record's group."""
    return replace(
        make_decisions([record])[0],
        resolved_training_step=at,
        update_index=None if discarded else 0,
        discard_reason="stale" if discarded else None,
    )


def test_what_was_played_ahead_is_kept_by_the_training_step_that_decided_on_it(
    writer: StoreWriter, session: Session
) -> None:
    fates = {0: 2, 1: 3, 2: None, 3: 2, 4: 3}  # group of training step 1 → decided in
    records = [make_record(make_trajectory(), group_index=group) for group in fates]
    greedy = [
        make_record(make_trajectory(), phase="baseline", group_index=group)
        for group in (*fates, 9)  # none of the last one's sampled episodes was over
    ]
    decisions = [
        decide(record, at=at, discarded=record.group_index >= 3)
        for record in records
        if (at := fates[record.group_index]) is not None
    ]
    credits = [
        replace(make_credit(record), trained_training_step=at)
        for record in records[:2]
        if (at := fates[record.group_index]) is not None
    ]
    writer.write([run_started(), *records, *greedy, *decisions, *credits])
    columns = "SELECT group_index, rolled_back, trained, trained_training_step FROM episodes"
    order = " WHERE phase = 'train' ORDER BY group_index"
    beside = order.replace("train", "baseline")
    assert [tuple(row) for row in session.execute(text(columns + order))] == [
        (0, 0, 1, 2),
        (1, 0, 1, 3),
        (2, 0, 0, None),
        (3, 0, 0, None),
        (4, 0, 0, None),
    ]
    session.rollback()

    writer.write([run_started(attempt=1, resumes_after=2)])

    kept = [tuple(row) for row in session.execute(text(columns + order))]
    assert kept == [
        (0, 0, 1, 2),
        (1, 1, 0, None),
        (2, 1, 0, None),
        (3, 0, 0, None),
        (4, 1, 0, None),
    ]
    groups = session.execute(text("SELECT rolled_back FROM groups" + order))
    assert [bool(row[0]) for row in groups] == [False, True, True, False, True]
    for table in ("groups", "episodes"):
        shared = session.execute(text(f"SELECT rolled_back FROM {table}{beside}"))
        assert [bool(row[0]) for row in shared] == [False, True, True, False, True, True]
    trained = session.execute(text("SELECT DISTINCT episode_id FROM steps WHERE trained"))
    assert trained.scalars().all() == ["run/0/train/1/0/0/0"]
    session.rollback()

    # The writer's queue may bring all of it again, and what it had not brought before.
    late = make_record(make_trajectory(), group_index=5)
    late_greedy = make_record(make_trajectory(), group_index=5, phase="baseline")
    again = [late, late_greedy, *records, *greedy, decide(late, at=2), *decisions, *credits]
    writer.write(again)

    assert [tuple(row) for row in session.execute(text(columns + order))] == [
        *kept,
        (5, 0, 0, None),
    ]
    for table in ("groups", "episodes"):
        shared = session.execute(text(f"SELECT rolled_back FROM {table}{beside}"))
        assert [bool(row[0]) for row in shared] == [False, True, True, False, True, False, True]
    assert queries.violations(session, run_id="run") == []


def test_an_update_is_the_groups_that_it_took_whichever_training_step_played_them(
    writer: StoreWriter, session: Session
) -> None:
    taken = {(1, 0): 1, (1, 1): 2, (2, 0): 2, (2, 1): 3}
    sampled, greedy = (
        [
            make_record(make_trajectory(), phase=phase, training_step=step, group_index=group)
            for step, group in taken
        ]
        for phase in ("train", "baseline")
    )
    decisions = [decide(record, at=at) for record, at in zip(sampled, taken.values(), strict=True)]
    writer.write([run_started(), *sampled, *greedy, *decisions])

    found = queries.episodes_of_update(session, run_id="run", training_step=2)

    assert {(one.phase, one.episode_id) for one in found} == {
        *(("train", one.episode_id) for one in sampled[1:3]),
        *(("baseline", one.episode_id) for one in greedy[1:3]),
    }


def test_a_decision_on_an_unknown_group_is_refused(writer: StoreWriter) -> None:
    record = make_record(make_trajectory())
    with pytest.raises(StoreError, match="decision on a group that is not in the store"):
        writer.write([run_started(), decide(record, at=1)])


def test_a_decision_has_a_place_or_a_reason_and_is_not_before_the_group() -> None:
    decision = decide(make_record(make_trajectory(), training_step=2), at=2)
    with pytest.raises(ValueError, match="a place in an update or a reason why it has none"):
        replace(decision, discard_reason="stale")
    with pytest.raises(ValueError, match="before it was played"):
        replace(decision, resolved_training_step=1)


@ON_BOTH
def test_what_a_given_up_attempt_writes_late_is_rolled_back_at_once(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started(), run_started(attempt=1, resumes_after=1)])

    late = make_training_step(2, attempt=0)
    writer.write([*late, *make_decisions(late), *(make_credit(episode) for episode in late)])

    page = queries.list_episodes(session, where=queries.EpisodeFilter(rolled_back=True))
    assert len(page.rows) == 8
    assert not any(row.trained for row in page.rows)


def test_a_resume_that_is_written_again_must_go_on_from_the_same_checkpoint(
    writer: StoreWriter, session: Session
) -> None:
    first = make_training_step(1)
    writer.write([run_started(), *first, *make_decisions(first), *make_training_step(2)])
    resumed = run_started(attempt=1, resumes_after=1)

    writer.write([resumed])
    writer.write(make_training_step(2, attempt=1))
    writer.write([resumed])

    assert queries.count_episodes(session) == 16
    with pytest.raises(StoreError, match="already went on from training step 1, not from 0"):
        writer.write([run_started(attempt=1, resumes_after=0)])


def test_a_first_attempt_that_resumes_is_refused(writer: StoreWriter) -> None:
    with pytest.raises(StoreError, match="has no earlier attempt to roll back"):
        writer.write([run_started(resumes_after=0)])


def test_a_resumed_run_is_running_again(writer: StoreWriter, session: Session) -> None:
    writer.write(
        [
            run_started(),
            RunEnded(
                run_id="run", attempt=0, status="failed", message="out of memory", ended_at=9.0
            ),
        ]
    )
    assert queries.get_run(session, run_id="run").summary.status == "failed"
    session.rollback()

    writer.write([run_started(attempt=1)])

    run = queries.get_run(session, run_id="run")
    assert (run.summary.status, run.summary.attempt, run.summary.message) == ("running", 1, "")
    assert [attempt.status for attempt in run.attempts] == ["failed", "running"]
    assert run.attempts[0].message == "out of memory"


def test_a_start_that_is_written_again_does_not_undo_the_end(
    writer: StoreWriter, session: Session
) -> None:
    end = RunEnded(run_id="run", attempt=0, status="finished", message="", ended_at=9.0)
    writer.write([run_started(), end])

    writer.write([run_started()])

    assert queries.get_run(session, run_id="run").summary.status == "finished"


def test_the_end_of_an_old_attempt_does_not_end_the_new_one(
    writer: StoreWriter, session: Session
) -> None:
    writer.write([run_started(), run_started(attempt=1)])

    writer.write(
        [
            RunEnded(run_id="run", attempt=0, status="failed", message="late", ended_at=9.0),
            Heartbeat(run_id="run", attempt=0, at=1_999_999_999.0),
        ]
    )

    run = queries.get_run(session, run_id="run").summary
    assert run.status == "running"
    assert run.heartbeat_at == 1_760_000_001.0


def test_credentials_do_not_reach_the_store(
    writer: StoreWriter, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-1234567890")
    url = "postgresql://ann:hunter2@db.example/runs"
    failure = replace(make_failure(), message=f"cannot reach {url}")
    writer.write(
        [
            replace(
                run_started(),
                config_json=f'{{"store": "{url}"}}',
                provenance_json='{"environment": "sk-1234567890"}',
            ),
            make_record(failure),
            RunEnded(run_id="run", attempt=0, status="failed", message=f"lost {url}", ended_at=2.0),
        ]
    )

    run = queries.get_run(session, run_id="run")
    [failed] = queries.failures(session, run_id="run").rows
    everything = f"{run} {failed}"
    assert "hunter2" not in everything
    assert "sk-1234567890" not in everything
    assert run.config_json == '{"store": "postgresql://ann:***@db.example/runs"}'


@ON_BOTH
def test_a_metric_that_is_not_a_number_is_null_and_infinity_stays(
    writer: StoreWriter, session: Session
) -> None:
    values = {"nan": math.nan, "inf": math.inf}
    writer.write([run_started(), Metrics(run_id="run", attempt=0, training_step=1, values=values)])

    series = queries.metric_series(session, run_id="run")
    assert series["nan"] == [queries.MetricPoint(1, None)]
    assert series["inf"] == [queries.MetricPoint(1, math.inf)]


TOO_LARGE = 2**31
NAN = float("nan")


HEARTBEAT = Heartbeat(run_id="run", attempt=0, at=1.0)
VERSION = PolicyVersion(run_id="run", attempt=0, version=1, training_step=1, created_at=1.0)
EVALUATION = Evaluation(
    run_id="run",
    attempt=0,
    training_step=1,
    panel="fixed",
    split=Split.TEST,
    num_episodes=1,
    mean_return=0.5,
    success_rate=0.5,
)
PANEL = PanelTasks(run_id="run", name="fixed", split=Split.TEST, tasks=())
LABEL = Label(
    episode_id="run/0/train/1/0/0/0",
    step_index=None,
    name="good",
    value="yes",
    author="ann",
    created_at=1.0,
)
DECISION = make_decisions(make_training_step(1))[0]
ENDED = make_trajectory()
STEP = make_step(0)


def of_task(task: Task) -> Record:
    return make_record(make_trajectory(task=task))


def of_step(step: Step) -> Record:
    return make_record(replace(ENDED, steps=(step,)))


# What one of the databases would refuse or change: SQLite takes any length and 64 bits, and makes
# NaN null.
REFUSED: list[tuple[Record, str]] = [
    (replace(run_started("new"), pid=TOO_LARGE), r"runs\.pid \(id 'new'\) must lie in"),
    (replace(run_started("new"), num_training_steps=TOO_LARGE), r"runs\.num_training_steps"),
    (replace(run_started("new"), started_at=NAN), r"runs\.started_at .* got nan"),
    (replace(HEARTBEAT, pid=TOO_LARGE), r"runs\.pid must lie in"),
    (replace(HEARTBEAT, at=NAN), r"runs\.heartbeat_at must be a finite number"),
    (
        RunEnded(run_id="run", attempt=0, status="failed", message="", ended_at=NAN),
        r"runs\.ended_at",
    ),
    (replace(VERSION, version=TOO_LARGE), r"policy_versions\.version"),
    (replace(VERSION, created_at=NAN), r"policy_versions\.created_at"),
    (replace(EVALUATION, training_step=TOO_LARGE), r"evaluations\.training_step"),
    (replace(EVALUATION, mean_return=NAN), r"evaluations\.mean_return"),
    (
        replace(EVALUATION, panel="p" * 256),
        r"evaluations\.panel .* may have 255 characters, got 256",
    ),
    (Metrics(run_id="run", attempt=0, training_step=1, values={"m" * 256: 1.0}), r"metrics\.name"),
    (TokenPieces(run_id="run", pieces={TOO_LARGE: b"x"}), r"token_pieces\.token_id"),
    (replace(PANEL, name="p" * 256), r"panels\.name"),
    (replace(LABEL, name="n" * 256), r"labels\.name"),
    (replace(LABEL, author="a" * 256), r"labels\.author"),
    (replace(LABEL, created_at=NAN), r"labels\.created_at"),
    (replace(make_audit(), audited_at=NAN), r"audits\.audited_at"),
    (replace(DECISION, resolved_training_step=TOO_LARGE), r"groups\.resolved_training_step"),
    (
        of_task(replace(make_task(), seed=2**63)),
        rf"tasks\.seed \(hash .*\) must lie in .*{2**63 - 1}\], got {2**63}",
    ),
    (
        of_task(replace(make_task(), task_id="t" * 513)),
        r"tasks\.task_id .* may have 512 characters, got 513",
    ),
    (make_record(make_trajectory(), group_size=TOO_LARGE), r"groups\.group_size"),
    (make_record(replace(ENDED, horizon=TOO_LARGE)), r"episodes\.horizon .* got 2147483648"),
    (make_record(replace(ENDED, seed=-(2**63) - 1)), r"episodes\.seed"),
    (make_record(replace(ENDED, duration_seconds=NAN)), r"episodes\.duration_seconds"),
    (
        of_step(with_call(STEP, policy_version=TOO_LARGE)),
        r"episodes\.oldest_policy_version",
    ),
    (of_step(with_call(STEP, dropped_exchanges=TOO_LARGE)), r"calls\.dropped_exchanges"),
    (of_step(with_call(STEP, generate_seconds=NAN)), r"calls\.generate_seconds"),
]


@ON_BOTH
def test_what_one_database_could_not_keep_both_refuse_by_name(
    writer: StoreWriter, counts: Counts
) -> None:
    writer.write([run_started(), *make_training_step(1)])
    before = counts()
    for record, reason in REFUSED:
        if isinstance(record, EpisodeRecord):
            record = replace(record, training_step=2)
        with pytest.raises(StoreError, match=reason):
            writer.write([record])
        assert counts() == before, reason


@ON_BOTH
def test_both_databases_keep_what_lies_at_the_limit(writer: StoreWriter, counts: Counts) -> None:
    draw = random.Random(0)

    def name(length: int) -> str:
        """Of letters that take four bytes each and that nothing can compress."""
        return "".join(chr(draw.randrange(0x20000, 0x2A000)) for _ in range(length))

    run_id = name(128)
    step = with_call(make_step(0), policy_version=TOO_LARGE - 1)
    task = replace(make_task(), task_id=name(512), seed=-(2**63))
    outcome = replace(make_trajectory(task=task), steps=(step,), horizon=TOO_LARGE - 1)
    episode = make_record(outcome, run_id=run_id, training_step=TOO_LARGE - 1)
    writer.write(
        [
            replace(run_started(run_id), pid=TOO_LARGE - 1),
            episode,
            replace(LABEL, episode_id=episode.episode_id, name=name(255), author=name(255)),
            replace(EVALUATION, panel=name(255), run_id=run_id),
            Metrics(run_id=run_id, attempt=0, training_step=1, values={name(255): math.inf}),
            replace(PANEL, run_id=run_id, name=name(255), tasks=(task,)),
            TokenPieces(run_id=run_id, pieces={-TOO_LARGE: b"x"}),
        ]
    )
    kept = counts()
    for table in ("labels", "evaluations", "metrics", "panels", "token_pieces", "steps"):
        assert kept[table] == 1


@pytest.mark.parametrize("run_id", ["a\x00b", "a\ud800b"])
def test_a_run_id_that_no_database_can_keep_is_refused(run_id: str) -> None:
    with pytest.raises(ValueError, match="neither NUL nor half a surrogate pair"):
        run_started(run_id)


@ON_BOTH
def test_two_writers_at_once_lose_and_double_nothing(
    store: str, writer: StoreWriter, session: Session
) -> None:
    # Both write the same ten training steps and five of their own.
    writer.write([run_started()])

    def write(own: range) -> None:
        with StoreWriter(store) as another:
            for training_step in (*range(1, 11), *own):
                measured = {"a": 1.0}
                another.write(make_training_step(training_step))
                another.write([Metrics(run_id="run", attempt=0, training_step=1, values=measured)])

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(write, [range(11, 16), range(16, 21)]))

    assert queries.count_episodes(session) == 20 * 8
    assert queries.violations(session, run_id="run") == []
    assert queries.metric_series(session, run_id="run") == {"a": [queries.MetricPoint(1, 1.0)]}


@ON_BOTH
def test_flush_returns_and_what_was_written_is_there(writer: StoreWriter, counts: Counts) -> None:
    writer.write([run_started(), *make_training_step(1)])
    writer.flush()
    assert counts()["episodes"] == 8


# What a critic said, and learnt from


def test_values_are_kept_with_their_targets_and_the_end_of_the_episode(
    writer: StoreWriter, session: Session
) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    tokens = ((0.5, -1.0, 0.0, 0.0, 0.0, 0.25), (2.0,) * 6)
    credit = replace(
        make_credit(record),
        values=(0.2, 0.4),
        value_targets=(0.9, 1.0),
        final_value=-0.5,
    )
    credit = replace(
        credit,
        calls=tuple(
            replace(call, token_values=values, token_advantages=advantages)
            for call, values, advantages in zip(credit.calls, tokens, tokens[::-1], strict=True)
        ),
    )

    writer.write([run_started(), record, credit, make_values(record)])

    numbers = session.execute(
        text("SELECT value_target FROM step_detail UNION ALL SELECT final_value FROM episodes")
    ).scalars()
    assert sorted(numbers) == [-0.5, 0.9, 1.0]
    blobs = session.execute(
        text("SELECT token_values, token_advantages FROM call_tokens ORDER BY step_index")
    ).all()
    assert [tuple(map(unpack_logprobs, row)) for row in blobs] == [tokens, tokens[::-1]]
    [row] = session.execute(text("SELECT * FROM critic_loss_inputs")).mappings()
    assert row["episode_id"] == record.episode_id
    assert (row["optimizer_step_index"], row["micro_batch"], row["row_index"]) == (1, 2, 3)
    assert (row["num_tokens"], row["first_token"], row["target_low"]) == (1, 0, 0.5)


def test_values_of_steps_that_are_not_there_and_that_are_no_numbers_are_refused(
    writer: StoreWriter,
) -> None:
    record = make_record(make_trajectory(rewards=(0.0, 1.0)))
    writer.write([run_started(), record])

    with pytest.raises(StoreError, match=r"step 7, but episode .* no such call in its 2 steps"):
        writer.write([make_values(record, step_index=7)])
    with pytest.raises(StoreError, match=r"loss_inputs\.target_low \(.*step_index 0.* got inf"):
        writer.write([make_values(record, target_low=math.inf)])
    with pytest.raises(
        StoreError, match=r"episodes\.final_value \(.*must be a finite number, got nan"
    ):
        writer.write([replace(make_credit(record), final_value=math.nan)])
    with pytest.raises(ValueError, match="None exactly when num_tokens is 0"):
        make_values(record, num_tokens=0)
