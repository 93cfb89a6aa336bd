"""Tests for the cache of compiled statements that the engines of a test process share."""

from typing import Any

from sqlalchemy import Engine, create_engine, event, select

from longhaul_core.store.models import Base


def compiled_by(engine: Engine) -> Any:  # noqa: ANN401  # SQLAlchemy's own object
    """What an engine executes for one statement."""
    executed: list[Any] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _(*given: Any) -> None:  # noqa: ANN401
        executed.append(given[4].compiled)

    runs = Base.metadata.tables["runs"]
    with engine.begin() as connection:
        runs.create(connection)
        executed.clear()
        connection.execute(select(runs.c.name).where(runs.c.id == "a")).all()
    engine.dispose()
    (compiled,) = executed
    return compiled


def test_a_statement_is_compiled_once_for_all_engines_of_a_kind() -> None:
    first, second = (compiled_by(create_engine("sqlite://")) for _ in range(2))

    assert first is second
