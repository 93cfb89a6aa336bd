"""Tests for `longhaul_trainer.run.stored_run`: a store that is held for a while, or refuses."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.queries import get_run
from longhaul_core.store.records import Heartbeat
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.run import store_retries
from longhaul_trainer.run.stored_run import StoredRun


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store whose lock is waited for 50 ms instead of 30 s."""
    monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(store_retries, "FIRST_PAUSE_SECONDS", 0.05)
    return tmp_path / "store.db"


async def begun(path: Path) -> StoredRun:
    run = StoredRun(str(path), run_id="run")
    await run.start(name="test", config_json="{}", provenance_json="{}")
    return run


def beat() -> list[Heartbeat]:
    return [Heartbeat(run_id="run", attempt=0, at=time.time())]


def test_a_store_that_is_held_is_waited_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        run = await begun(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            beating = asyncio.create_task(run.write(beat()))
            ending = asyncio.create_task(run.end("cancelled", message="SIGTERM"))
            while "trying again" not in caplog.text:
                assert not beating.done()
                await asyncio.sleep(0.02)
            holder.execute("ROLLBACK")
        await asyncio.gather(beating, ending)
        run.close()

    asyncio.run(asyncio.wait_for(main(), 60))

    with Session(read_only_engine(path)) as session:
        assert get_run(session, run_id="run").summary.status == "cancelled"


def test_a_store_that_is_held_too_long_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_retries, "LONGEST_AWAY_SECONDS", 0.2)

    async def main() -> None:
        run = await begun(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="database is locked"):
                await run.write(beat())
        run.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_the_store_refuses_is_not_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        run = StoredRun(str(path), run_id="never begun")
        with pytest.raises(StoreError):
            await run.end("finished")
        run.close()

    asyncio.run(asyncio.wait_for(main(), 60))

    assert "trying again" not in caplog.text
