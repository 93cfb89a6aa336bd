"""The guide's SQL runs on both databases and answers what the guide says it does."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from longhaul_core.store import StoreWriter
from longhaul_core.store.models import Base
from store_samples import (
    NO_SIGNAL,
    SIGNALS,
    make_audit,
    make_consumed,
    make_credit,
    make_decisions,
    make_failure,
    make_record,
    make_signals,
    make_training_step,
    run_started,
)

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "store.md").read_text(encoding="utf-8")
STATEMENTS = [
    statement.strip().rstrip(";") for statement in re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL)
]


@pytest.fixture(autouse=True)
def _sample(writer: StoreWriter) -> None:
    episodes = [*make_training_step(1), *make_training_step(2)]
    writer.write(
        [
            run_started(),
            *episodes,
            *make_decisions(episodes),
            *(make_credit(episode) for episode in episodes),
        ]
    )
    writer.write(make_consumed(episode) for episode in episodes[:-1])
    records, credits = make_signals(training_step=3)
    broken = make_record(make_failure(), training_step=3, group_index=len(SIGNALS))
    writer.write([make_audit(), *records, *credits, broken])


def test_the_guide_has_samples() -> None:
    assert len(STATEMENTS) >= 9


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda sql: sql.split("\n")[0][:40])
def test_a_sample_gives_rows(engine: Engine, statement: str) -> None:
    with engine.connect() as connection:
        assert len(connection.execute(text(statement)).all()) > 0


def test_only_groups_without_any_advantage_taught_nothing(engine: Engine) -> None:
    after = GUIDE[GUIDE.index("Which groups taught nothing") :]
    statement = next(each for each in STATEMENTS if each in after)
    with engine.connect() as connection:
        named = connection.execute(text(statement)).all()
    assert {(row.training_step, row.group_index) for row in named} == {(3, n) for n in NO_SIGNAL}


def test_every_table_is_in_the_guide() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE[GUIDE.index("## Tables") :]))
    assert set(Base.metadata.tables) <= named
