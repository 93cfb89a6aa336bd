"""`trainer store`, as a person calls it."""

import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.engine import URL

from longhaul_core.store import StoreWriter
from longhaul_trainer.cli.main import main
from store_samples import run_started

ROLE = "longhaul_sql_of_a_test"


@pytest.fixture
def store(postgresql_server: URL) -> Iterator[str]:
    """A store in PostgreSQL with one run, by the address of a superuser."""
    server = create_engine(postgresql_server, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text("CREATE DATABASE fenced_by_command"))
    url = postgresql_server.set(database="fenced_by_command").render_as_string(hide_password=False)
    with StoreWriter(url) as writer:
        writer.write([run_started("run")])
    yield url
    with server.connect() as connection:
        connection.execute(text("DROP DATABASE fenced_by_command WITH (FORCE)"))
        connection.execute(text(f"DROP ROLE IF EXISTS {ROLE}"))
    server.dispose()


def trainer(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["trainer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_printed_address_answers_selects_and_nothing_else(
    store: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert trainer(monkeypatch, "store", "fence-role", "--store", store, "--role", ROLE) == 0
    shown = capfd.readouterr()
    [address] = shown.out.splitlines()
    made = make_url(address)
    assert made.username == ROLE
    assert made.password
    assert made.password not in shown.err
    assert f"{ROLE} may read" in shown.err

    sql = "SELECT run_id FROM run_summary"
    assert trainer(monkeypatch, "query", sql, "--store", address, "--format", "csv") == 0
    assert capfd.readouterr().out == "run_id\nrun\n"
    assert trainer(monkeypatch, "query", sql, "--store", store) != 0  # a superuser's address
    assert "fence-role" in capfd.readouterr().err
    engine = create_engine(made.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        may = "SELECT has_table_privilege('runs', 'DELETE'), has_table_privilege('runs', 'SELECT')"
        assert tuple(connection.execute(text(may)).one()) == (False, True)
    engine.dispose()


def test_a_sqlite_store_is_refused_with_the_reason(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    store = str(tmp_path_factory.mktemp("sqlite") / "store.db")
    with StoreWriter(store):
        pass
    assert trainer(monkeypatch, "store", "fence-role", "--store", store) == 2
    assert "it needs no role" in " ".join(capfd.readouterr().err.split())
