"""The guide's SQL runs on both databases and answers what the guide says it does."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Boolean, Engine, text

from longhaul_core.store import StoreWriter
from longhaul_core.store.models import Base
from store_samples import (
    make_audit,
    make_consumed,
    make_credit,
    make_decisions,
    make_failure,
    make_record,
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
    # A group whose episodes all have the same return, and one that broke.
    dull = [each for each in make_training_step(3, num_groups=1) if each.outcome.position % 2]
    last = [*dull, make_record(make_failure(), training_step=3, group_index=1)]
    writer.write([make_audit(), *last, *make_decisions(last)])
    # What the resume takes back.
    writer.write(make_training_step(4))
    writer.write([run_started(attempt=1, resumes_after=3)])


def test_the_guide_has_samples() -> None:
    assert len(STATEMENTS) >= 9


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda sql: sql.split("\n")[0][:40])
def test_a_sample_gives_rows(engine: Engine, statement: str) -> None:
    with engine.connect() as connection:
        assert len(connection.execute(text(statement)).all()) > 0


@pytest.mark.parametrize("condition", re.findall(r"`WHERE (.*?)`", GUIDE))
def test_a_condition_holds_on_both_databases(engine: Engine, condition: str) -> None:
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT id FROM episodes WHERE {condition}")).all()
    assert len(found) > 0


def test_no_flag_is_compared_with_a_number() -> None:
    flags = {
        column.name
        for table in Base.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, Boolean)
    }
    assert "superseded" in flags
    assert not re.findall(rf"\b(?:{'|'.join(sorted(flags))})\b *(?:=|<>|!=) *[01]\b", GUIDE)


def test_every_table_is_in_the_guide() -> None:
    named = set(re.findall(r"`(\w+)`", GUIDE[GUIDE.index("## Tables") :]))
    assert set(Base.metadata.tables) <= named
