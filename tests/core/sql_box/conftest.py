"""A store that varies, on either database; PostgreSQL's through a fenced role."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL

from core.sql_box.varied_store import World, write_world
from longhaul_core.sql_box.fenced_role import make_fenced_role
from longhaul_core.store import open_store


@dataclass(frozen=True, kw_only=True)
class Box:
    """A store for the SQL box."""

    dialect: Literal["sqlite", "postgresql"]
    url: str
    """PostgreSQL's is that of the fenced role."""
    owner: str
    """That of who owns the tables."""
    world: World


@pytest.fixture(scope="session")
def sqlite_box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    url = str(tmp_path_factory.mktemp("sql box") / "store.db")
    return Box(dialect="sqlite", url=url, owner=url, world=write_world(url))


@pytest.fixture(scope="session")
def postgresql_box(postgresql_server: URL) -> Iterator[Box]:
    server = create_engine(postgresql_server, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text("CREATE DATABASE sql_box"))
    owner = postgresql_server.set(database="sql_box")
    shown = owner.render_as_string(hide_password=False)
    world = write_world(shown)
    engine = open_store(owner)
    role = make_fenced_role(engine)
    engine.dispose()
    yield Box(
        dialect="postgresql",
        url=role.url.render_as_string(hide_password=False),
        owner=shown,
        world=world,
    )
    with server.connect() as connection:
        connection.execute(text("DROP DATABASE sql_box WITH (FORCE)"))
    server.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def box(request: pytest.FixtureRequest) -> Box:
    found: Box = request.getfixturevalue(f"{request.param}_box")
    return found
