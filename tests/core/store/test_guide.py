"""The guide's SQL runs on both databases and answers what the guide says it does."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Boolean, Engine, text

from core.store.conftest import ON_BOTH
from longhaul_core.store import StoreWriter
from longhaul_core.store.models import Base
from store_samples import (
    NO_SIGNAL,
    SIGNALS,
    make_audit,
    make_credit,
    make_decisions,
    make_failure,
    make_loss_input,
    make_program,
    make_record,
    make_signals,
    make_training_step,
    make_trajectory,
    run_started,
)

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "store.md").read_text(encoding="utf-8")
STATEMENTS = [
    statement.strip().rstrip(";") for statement in re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL)
]


@pytest.fixture(autouse=True)
def _sample(writer: StoreWriter) -> None:
    episodes = [*make_training_step(1), *make_training_step(2)]
    # The episode that the guide asks about is of a program with pictures.
    episodes[3] = replace(
        episodes[3], outcome=make_program(task=episodes[3].outcome.task, sample_index=3)
    )
    assert episodes[3].episode_id == "run/0/train/1/0/3/0"
    writer.write(
        [
            run_started(),
            *episodes,
            *make_decisions(episodes),
            *(make_credit(episode) for episode in episodes),
        ]
    )
    writer.write(make_loss_input(episode) for episode in episodes[:-1])
    # Groups with a signal and without, and one whose only episode broke.
    records, credits = make_signals(training_step=3)
    broken = make_record(make_failure(), training_step=3, group_index=len(SIGNALS))
    played = [*records, broken]
    writer.write([make_audit(), *played, *make_decisions(played), *credits])
    writer.write([make_record(make_trajectory(), phase="branch")])
    # What the resume takes back.
    writer.write(make_training_step(4))
    writer.write([run_started(attempt=1, resumes_after=3)])


def test_the_guide_has_samples() -> None:
    assert len(STATEMENTS) >= 9


@ON_BOTH
def test_each_sample_and_condition_gives_rows(engine: Engine) -> None:
    conditions = re.findall(r"`WHERE (.*?)`", GUIDE)
    assert conditions
    asked = [*STATEMENTS, *(f"SELECT id FROM episodes WHERE {each}" for each in conditions)]
    with engine.connect() as connection:
        assert [sql for sql in asked if not connection.execute(text(sql)).all()] == []


def test_no_flag_is_compared_with_a_number() -> None:
    flags = {
        column.name
        for table in Base.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, Boolean)
    }
    assert "rolled_back" in flags
    assert not re.findall(rf"\b(?:{'|'.join(sorted(flags))})\b *(?:=|<>|!=) *[01]\b", GUIDE)


@ON_BOTH
def test_only_groups_without_any_advantage_taught_nothing(engine: Engine) -> None:
    after = GUIDE[GUIDE.index("Which groups taught nothing") :]
    statement = next(each for each in STATEMENTS if each in after)
    with engine.connect() as connection:
        named = connection.execute(text(statement)).all()
    assert {(row.training_step, row.group_index) for row in named} == {(3, n) for n in NO_SIGNAL}


def test_every_table_is_in_the_guide() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE[GUIDE.index("## Tables") :]))
    assert set(Base.metadata.tables) <= named
