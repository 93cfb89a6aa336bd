"""Tests for `trainer audit`, on a store that the real writer wrote."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import typer
from sqlalchemy.orm import Session

from audited_run import RUN, make_config, play, run_started
from longhaul_core.errors import ConfigError
from longhaul_core.store import StoreWriter, queries, read_only_engine
from longhaul_trainer.cli.audit import audit_in_store


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "store.db")
    config = make_config()
    with StoreWriter(path) as writer:
        writer.write([run_started(config)])
        writer.write(play(config, 1).records())
        writer.write(play(config, 2).records())
    return path


def test_a_clean_run_ends_quietly_and_leaves_its_audit(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    audit_in_store(store, "last", training_steps=None)

    shown = capfd.readouterr().out
    assert "what was checked is as it was meant" in shown
    assert "loss_weights" in shown
    engine = read_only_engine(store)
    with Session(engine) as session:
        [kept] = queries.list_audits(session, run_id=RUN)
    engine.dispose()
    assert (kept.first_training_step, kept.last_training_step, kept.num_findings) == (1, 2, 0)


def test_a_finding_is_shown_stored_and_told_by_the_exit_code(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE calls SET policy_version = 9 "
            "WHERE episode_id = 'run/0/train/2/0/0/0' AND step_index = 0"
        )

    with pytest.raises(typer.Exit) as ending:
        audit_in_store(store, RUN, training_steps=[2])

    assert ending.value.exit_code == 1
    line = (
        "found: policy_version: run/0/train/2/0/0/0, step 0, call 0: "
        "found policy version 9, expected policy version 2"
    )
    assert line in capfd.readouterr().out
    engine = read_only_engine(store)
    with Session(engine) as session:
        [kept] = queries.list_audits(session, run_id=RUN)
    engine.dispose()
    assert [finding.step_index for finding in kept.findings] == [0]


def test_another_training_step_than_the_wrong_one_is_clean(store: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE calls SET policy_version = 9 WHERE episode_id = 'run/0/train/2/0/0/0'"
        )

    with pytest.raises(typer.Exit):
        audit_in_store(store, RUN, training_steps=[2])

    audit_in_store(store, RUN, training_steps=[1])


def test_a_training_step_that_was_not_played_is_refused(store: str) -> None:
    with pytest.raises(ConfigError, match="no episodes of training step 7"):
        audit_in_store(store, RUN, training_steps=[7])
