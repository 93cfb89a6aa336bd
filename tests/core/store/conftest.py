"""A store in a SQLite file; for what each database does in its own way, a real PostgreSQL too."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, delete, text
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

from longhaul_core.store import StoreWriter, open_store, read_only_engine
from longhaul_core.store.models import Base

_numbers = count()

ON_BOTH = pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
"""For what the databases do each in its own way: how many rows are written at once, what is
refused, locks, plans, search, sizes. All else is asked once; `test_parity` compares the two."""


@contextmanager
def new_database(server: URL) -> Generator[str]:
    """The address of a database that holds nothing, while the block runs."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    name = f"empty_{next(_numbers)}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield server.set(database=name).render_as_string(hide_password=False)
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture
def empty_postgresql(postgresql_server: URL) -> Iterator[str]:
    """The address of a database that holds nothing."""
    with new_database(postgresql_server) as address:
        yield address


@pytest.fixture(scope="session")
def postgresql_engine(postgresql_server: URL) -> Iterator[Engine]:
    """A store that all tests share, one after the other."""
    engine = open_store(postgresql_server)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that holds an empty store."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    open_store(path).dispose()
    return path


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store: a file, or what `ON_BOTH` asks for."""
    if getattr(request, "param", "sqlite") == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        return str(shutil.copy(template, tmp_path / "store.db"))
    engine: Engine = request.getfixturevalue("postgresql_engine")
    with engine.begin() as connection:  # TRUNCATE makes thirty new files, for 0.1 s a test
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(delete(table))
        connection.execute(text("TRUNCATE step_search"))  # whose size on disk is measured
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def writer(store: str) -> Iterator[StoreWriter]:
    with StoreWriter(store) as writer:
        yield writer


@pytest.fixture
def opened(store: str) -> Iterator[Engine]:
    """Reads and changes the store."""
    engine = open_store(store)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(store: str) -> Iterator[Engine]:
    """Reads the store."""
    engine = read_only_engine(store)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
def counts(engine: Engine) -> Callable[[], dict[str, int]]:
    """Rows of every table that holds what runs leave."""

    def count_rows() -> dict[str, int]:
        with engine.connect() as connection:
            return {
                table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                for table in Base.metadata.tables
                if table != "search_progress"
            }

    return count_rows
