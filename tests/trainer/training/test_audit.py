"""Tests for `longhaul_trainer.training.audit`: told, stored, and never in the way of the run."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from audited_run import RUN, make_config, play, run_started
from longhaul_core.store import Audit, Record, StoreWriter, queries, read_only_engine
from longhaul_trainer.training.audit import start_audit

CHANGE = (
    "UPDATE steps SET advantage = advantage + 1 "
    "WHERE episode_id = 'run/0/train/1/0/0/0' AND step_index = 0"
)


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "store.db")
    config = make_config()
    with StoreWriter(path) as writer:
        writer.write([run_started(config)])
        for training_step in (1, 2):
            writer.write(play(config, training_step).records())
    return path


def audited(store: str, training_step: int) -> list[tuple[int, str]]:
    """What is told of a training step."""
    heard: list[tuple[int, str]] = []

    def write(records: Sequence[Record]) -> None:
        with StoreWriter(store) as writer:
            writer.write(records)

    start_audit(
        store,
        run_id=RUN,
        training_step=training_step,
        write=write,
        warn=lambda step, text: heard.append((step, text)),
    ).join()
    return heard


def test_one_training_step_is_audited_and_the_answer_kept(store: str) -> None:
    assert audited(store, 2) == []

    engine = read_only_engine(store)
    with Session(engine) as session:
        [kept] = queries.list_audits(session, run_id=RUN)
    engine.dispose()
    assert (kept.first_training_step, kept.last_training_step, kept.num_findings) == (2, 2, 0)


def test_what_it_finds_is_told_by_rule_episode_and_step(store: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(CHANGE)

    heard = audited(store, 1)

    assert {step for step, _ in heard} == {1}
    assert heard[0][1].startswith("the audit found advantage: run/0/train/1/0/0/0, step 0: found ")
    assert heard[-1][1] == "2 findings in all; `trainer audit run` lists them"


def test_an_audit_that_is_not_possible_is_told_and_ends_nothing(tmp_path: Path) -> None:
    [(step, text)] = audited(str(tmp_path / "none.db"), 1)

    assert step == 1
    assert text.startswith("the audit was not possible: there is no store at")


def test_a_result_that_cannot_be_kept_is_told_and_ends_nothing(store: str) -> None:
    heard: list[str] = []

    def refuse(records: Sequence[Record]) -> None:
        assert isinstance(records[0], Audit)
        raise LookupError("the writer is gone")

    start_audit(
        store, run_id=RUN, training_step=1, write=refuse, warn=lambda _, text: heard.append(text)
    ).join()

    assert heard == ["the audit was not possible: the writer is gone"]
