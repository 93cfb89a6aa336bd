"""A store of SQLite for each test, and what is imported into it."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.exchange import ImportSettings, format_named, import_files
from longhaul_core.store import StoreWriter, queries, read_only_engine
from longhaul_core.store.queries import EpisodeDetail

Import = Callable[..., list[EpisodeDetail]]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    with StoreWriter(tmp_path / "store.db") as writer:
        yield writer


@pytest.fixture
def engine(writer: StoreWriter, tmp_path: Path) -> Iterator[Engine]:
    engine = read_only_engine(tmp_path / "store.db")
    yield engine
    engine.dispose()


@pytest.fixture
def reading(engine: Engine) -> Callable[[], AbstractContextManager[Session]]:
    return partial(Session, engine)


def episodes_of(session: Session, run_id: str) -> list[EpisodeDetail]:
    """All of a run, in the order of a file."""
    page = queries.list_episodes(
        session,
        where=queries.EpisodeFilter(run_id=run_id),
        sort="training_step",
        descending=False,
        limit=1000,
    )
    return [queries.get_episode(session, episode_id=row.episode_id) for row in page.rows]


@pytest.fixture
def imported(writer: StoreWriter, engine: Engine) -> Import:
    """Imports a file, and returns the episodes of its run."""

    def run(path: Path, format: str, *, run_id: str = "imported", **given: Any) -> Any:  # noqa: ANN401
        settings = ImportSettings(format=format_named(format), run_id=run_id, name="x", **given)
        import_files(writer, path, settings)
        with Session(engine) as session:
            return episodes_of(session, run_id)

    return run


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of JSON lines."""

    def write(*values: object, name: str = "rollouts.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
        return path

    return write
