"""Tests for `longhaul_core.store.retention`."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from core.store.conftest import ON_BOTH
from longhaul_core.store import (
    EpisodeRecord,
    Label,
    StoreWriter,
    maintenance,
    open_store,
    queries,
)
from longhaul_core.store.labelling import put_label
from longhaul_core.store.queries import EpisodeDetail
from longhaul_core.store.retention import Retention
from longhaul_core.types import Split
from store_samples import (
    make_credit,
    make_decisions,
    make_loss_input,
    make_program,
    make_record,
    make_task,
    make_training_step,
    make_trajectory,
    run_started,
)


def trained(training_step: int, *, attempt: int = 0) -> list[EpisodeRecord]:
    return make_training_step(training_step, attempt=attempt)


def write(writer: StoreWriter, training_steps: Sequence[int]) -> None:
    """Training steps with all that a run leaves of them."""
    for training_step in training_steps:
        episodes = trained(training_step)
        writer.write(
            [
                *episodes,
                *make_decisions(episodes),
                *(make_credit(each) for each in episodes),
                *(make_loss_input(each) for each in episodes),
            ]
        )


def apply(engine: Engine, *, up_to: int, sampled_groups: int = 0) -> None:
    retention = Retention(engine, run_id="run", sampled_groups=sampled_groups)
    while retention.remove_some(up_to=up_to):
        pass


def retained(session: Session) -> dict[str, str | None]:
    rows = session.execute(text("SELECT id, retention FROM episodes ORDER BY id")).all()
    session.rollback()
    return {row.id: row.retention for row in rows}


def of_training_step(session: Session, number: int) -> set[str | None]:
    return {kept for key, kept in retained(session).items() if key.split("/")[3] == str(number)}


def episode(session: Session, episode_id: str) -> EpisodeDetail:
    found = queries.get_episode(session, episode_id=episode_id)
    session.rollback()
    return found


def test_only_numbers_and_actions_of_older_training_steps_stay(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started()])
    write(writer, (1, 2, 3))
    key = "run/0/train/1/0/1/0"
    before, newest = episode(session, key), episode(session, "run/0/train/3/0/1/0")

    apply(opened, up_to=2)

    after = episode(session, key)
    assert after.summary == replace(before.summary, retention="removed")
    assert after.final_observation is None
    for one, other in zip(after.steps, before.steps, strict=True):
        assert one.observation is one.anchor_state is one.admissible_actions is None
        same = {"calls": (), "observation": "", "anchor_state": "", "admissible_actions": ()}
        assert replace(one, **same) == replace(other, **same)  # action, reward and credit with it
        [call], [whole] = one.calls, other.calls
        assert whole.tokens is not None
        assert call == replace(whole, reply=None, messages=(), tokens=None)
    assert episode(session, "run/0/train/3/0/1/0") == newest
    assert queries.violations(session, run_id="run") == []
    left = "SELECT count(*) FROM {} WHERE episode_id NOT LIKE 'run/0/train/3/%'"
    for table in ("messages", "observations"):
        assert session.scalar(text(left.format(table))) == 0
    row = session.execute(
        text(
            "SELECT observation, reply, action, retention FROM step_detail WHERE episode_id = :id"
        ),
        {"id": key},
    ).first()
    assert row is not None
    assert tuple(row)[:2] == (None, None)
    assert row.action.startswith("go north")
    assert row.retention == "removed"


def test_a_sample_of_groups_stays_whole_and_another_process_draws_the_same(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started()])
    for training_step in (1, 2, 3, 4):
        write(writer, (training_step,))
        apply(opened, up_to=training_step, sampled_groups=1)  # each a process of its own

    groups = [
        {key.split("/")[4] for key, kept in retained(session).items() if kept == "sampled"
         and key.split("/")[3] == str(number)}
        for number in (1, 2, 3, 4)
    ]  # fmt: skip
    assert [len(each) for each in groups] == [1, 1, 1, 1]
    assert len({group for each in groups for group in each}) == 2  # not always the first one
    assert None not in retained(session).values()
    [number] = groups[0]
    kept = episode(session, f"run/0/train/1/{number}/0/0")
    assert kept.steps[0].calls[0].tokens is not None
    assert queries.violations(session, run_id="run") == []


def test_a_group_that_waits_for_its_update_is_not_touched(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    episodes = trained(1)
    waiting = [each for each in episodes if each.group_index == 0]
    decided = [each for each in episodes if each.group_index == 1]
    writer.write([run_started(), *episodes, *make_decisions(decided)])
    write(writer, (2,))
    retention = Retention(opened, run_id="run", sampled_groups=0)
    while retention.remove_some(up_to=2):
        pass
    whole = {key for key, kept in retained(session).items() if kept is None}
    assert whole == {each.episode_id for each in waiting}

    late = [replace(each, resolved_training_step=3) for each in make_decisions(waiting)]
    writer.write([*late, *(make_credit(each) for each in waiting)])
    assert not retention.remove_some(up_to=2)
    assert of_training_step(session, 1) == {None, "removed"}
    while retention.remove_some(up_to=3):
        pass
    assert of_training_step(session, 1) == {"removed"}


def test_a_group_that_was_written_late_goes_when_all_are_asked_about_once_more(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    episodes = trained(1)
    late = [each for each in episodes if each.group_index == 0]
    early = [each for each in episodes if each.group_index == 1]
    writer.write([run_started(), *early, *make_decisions(early)])
    retention = Retention(opened, run_id="run", sampled_groups=0)
    while retention.remove_some(up_to=1):
        pass
    writer.write([*late, *make_decisions(late)])
    assert of_training_step(session, 1) == {None, "removed"}

    retention.begin_anew()
    while retention.remove_some(up_to=1):
        pass

    assert of_training_step(session, 1) == {"removed"}


def test_a_run_loses_nothing_to_another_ones_retention(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started(), run_started("other"), *make_training_step(1, run_id="other")])
    write(writer, (1,))
    apply(opened, up_to=9)
    assert {key[:3] for key, kept in retained(session).items() if kept == "removed"} == {"run"}
    assert episode(session, "other/0/train/1/0/0/0").steps[0].observation


def test_what_a_resume_rolled_back_and_validation_go_too(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    validation = [
        make_record(
            make_trajectory(task=make_task(number, split=Split.VALIDATION)),
            phase="validation",
            training_step=1,
            group_index=number,
        )
        for number in range(3)
    ]
    writer.write([run_started(), *validation, *make_training_step(2)])
    writer.write([run_started(attempt=1, resumes_after=1)])
    apply(opened, up_to=2, sampled_groups=1)

    kept = retained(session)
    assert sorted(str(kept[each.episode_id]) for each in validation) == [
        "removed",
        "removed",
        "sampled",
    ]
    assert None not in kept.values()
    assert queries.violations(session, run_id="run") == []


def test_pictures_and_tools_go_with_the_last_episode_that_shows_them(
    writer: StoreWriter, opened: Engine, counts: Callable[[], dict[str, int]]
) -> None:
    def shown(training_step: int) -> list[EpisodeRecord]:
        return [make_record(make_program(), training_step=training_step)]

    for training_step in (1, 2):
        writer.write([run_started(), *shown(training_step), *make_decisions(shown(training_step))])
    apply(opened, up_to=1)
    assert (counts()["media"], counts()["episode_media"]) == (3, 3)
    assert (counts()["tool_lists"], counts()["episode_tools"]) == (1, 1)
    apply(opened, up_to=2)
    assert (counts()["media"], counts()["episode_media"]) == (0, 0)
    assert (counts()["tool_lists"], counts()["episode_tools"]) == (0, 0)


def test_of_a_programs_calls_the_numbers_stay(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    record = make_record(make_program())
    writer.write([run_started(), record, *make_decisions([record])])
    whole = episode(session, record.episode_id)

    apply(opened, up_to=1)

    removed = episode(session, record.episode_id)
    for step, before in zip(removed.steps, whole.steps, strict=True):
        for call, was in zip(step.calls, before.calls, strict=True):
            gone = replace(was, reply=None, messages=(), tokens=None, tools=(), tool_calls=())
            assert call == gone  # conversation, continuation, sampling and cost with it
    assert queries.violations(session, run_id="run") == []


@ON_BOTH
def test_the_text_index_forgets_what_is_removed(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started()])
    write(writer, (1, 2))
    maintenance.index_text(opened)
    apply(opened, up_to=1)
    hits = queries.search_steps(session, words="see", limit=100).rows
    session.rollback()
    assert {hit.training_step for hit in hits} == {2}
    assert maintenance.index_text(opened) == 0
    if opened.dialect.name == "sqlite":
        with opened.begin() as connection:
            check = "INSERT INTO step_search (step_search, rank) VALUES ('integrity-check', 1)"
            connection.execute(text(check))


@ON_BOTH
def test_a_process_that_dies_in_the_midst_leaves_each_episode_whole_or_removed(
    writer: StoreWriter, opened: Engine, session: Session, store: str
) -> None:
    """A statement of the batch is the last that the process sends."""
    writer.write([run_started()])
    write(writer, (1, 2))
    whole = episode(session, "run/0/train/1/0/0/0")
    engine = open_store(store)

    def die(_c: Connection, _u: object, executed: str, *_: object) -> None:
        if executed.startswith("INSERT INTO calls"):
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", die)
    with pytest.raises(KeyboardInterrupt):
        apply(engine, up_to=2)
    engine.dispose()
    assert set(retained(session).values()) == {None}
    assert episode(session, "run/0/train/1/0/0/0") == whole

    apply(opened, up_to=2)
    assert set(retained(session).values()) == {"removed"}


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_label_does_not_wait_for_retention(
    writer: StoreWriter, opened: Engine, session: Session, store: str
) -> None:
    """Nor does retention, which may wait for writers to end, wait for the label's."""
    writer.write([run_started()])
    write(writer, (1,))
    label = Label(
        episode_id="run/0/train/1/0/0/0",
        step_index=0,
        name="looks stuck",
        value="yes",
        author="ada",
        created_at=0.0,
    )
    put: list[Future[None]] = []

    def meanwhile(_c: Connection, _u: object, executed: str, *_: object) -> None:
        if "SKIP LOCKED" in executed and not put:
            put.append(pool.submit(put_label, opened, label))
            put[0].result(timeout=60)

    engine = open_store(store)
    event.listen(engine, "after_cursor_execute", meanwhile)
    with ThreadPoolExecutor(1) as pool:
        apply(engine, up_to=1)
    engine.dispose()
    assert len(put) == 1
    assert episode(session, label.episode_id).labels
    assert set(retained(session).values()) == {"removed"}


@ON_BOTH
def test_two_processes_and_a_writer_at_once_lose_nothing(
    writer: StoreWriter, session: Session, store: str
) -> None:
    writer.write([run_started()])
    write(writer, range(1, 7))
    engines = [open_store(store), open_store(store)]
    with ThreadPoolExecutor(2) as pool:
        going = [pool.submit(apply, engine, up_to=6) for engine in engines]
        write(writer, (7, 8))
        for each in going:
            each.result(timeout=60)
    for engine in engines:
        engine.dispose()
    kept = retained(session)
    assert {key for key, was in kept.items() if was is None} == {
        each.episode_id for number in (7, 8) for each in trained(number)
    }
    assert queries.violations(session, run_id="run") == []


def test_a_second_write_does_not_bring_back_what_is_gone(
    writer: StoreWriter, opened: Engine, session: Session
) -> None:
    writer.write([run_started()])
    write(writer, (1,))
    apply(opened, up_to=1)
    writer.write(trained(1))
    assert episode(session, "run/0/train/1/0/0/0").steps[0].observation is None
    assert of_training_step(session, 1) == {"removed"}


def test_the_space_of_what_is_removed_is_free_for_later_steps(
    sqlite_template: Path, tmp_path: Path
) -> None:
    path = shutil.copy(sqlite_template, tmp_path / "store.db")
    engine = open_store(path)

    def played(training_step: int) -> EpisodeRecord:
        rewards = (0.0,) * 30
        outcome = make_trajectory(rewards=rewards, num_prompt_tokens=1_000, num_action_tokens=200)
        return make_record(outcome, training_step=training_step)

    def num_pages() -> int:
        with engine.connect() as connection:
            return connection.execute(
                text("SELECT page_count - freelist_count FROM pragma_page_count(),"
                     " pragma_freelist_count()")
            ).scalar_one()  # fmt: skip

    with StoreWriter(path) as writer:
        writer.write([run_started()])
        empty = num_pages()
        for training_step in range(1, 5):
            record = played(training_step)
            writer.write([record, *make_decisions([record]), make_credit(record)])
        whole = num_pages() - empty
        apply(engine, up_to=4)
        assert num_pages() - empty < whole / 4
    engine.dispose()
