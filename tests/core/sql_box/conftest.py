"""A store that varies, on either database; PostgreSQL's through a fenced role."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL

from core.sql_box.varied_store import World, write_world
from longhaul_core.sql_box import box as box_module
from longhaul_core.sql_box.child.__main__ import answer_request
from longhaul_core.sql_box.child.request import Request
from longhaul_core.sql_box.fenced_role import make_fenced_role
from longhaul_core.sql_box.limits import Fence, QueryLimits
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


OF_A_PROCESS = {Fence.KILL, Fence.MEMORY, Fence.FILES}
"""Limits of a whole process, which no test may set in its own."""


def answered_here(request: dict[str, Any]) -> list[str]:
    """What the box's process would write, line by line; nothing limits this process."""
    output = io.StringIO()
    with redirect_stdout(output):
        answer_request(Request.read(json.dumps(request | {"without": sorted(OF_A_PROCESS)})))
    return [line for line in output.getvalue().split("\n") if line]


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what an answer says: a process of its own takes half a second to import a driver."""

    def answer(request: dict[str, Any], limits: QueryLimits, *, kills: bool) -> list[str]:
        return answered_here(request)

    monkeypatch.setattr(box_module, "_answer", answer)
