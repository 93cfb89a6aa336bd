"""Tests for `longhaul_trainer.run.stored_run`: a store that is held for a while, or refuses."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.clock import now
from longhaul_core.errors import StoreError
from longhaul_core.store.queries import get_run
from longhaul_core.store.records import Heartbeat
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.run.store_retries import LONGEST_AWAY_SECONDS
from longhaul_trainer.run.stored_run import StoredRun
from virtual_time import in_virtual_time


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store whose lock a thread waits for 10 ms instead of 30 s."""
    monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.01)
    return tmp_path / "store.db"


async def begun(path: Path) -> StoredRun:
    run = StoredRun(str(path), run_id="run")
    await run.start(name="test", config_json="{}", provenance_json="{}")
    return run


def beat() -> list[Heartbeat]:
    return [Heartbeat(run_id="run", attempt=0, at=time.time())]


@in_virtual_time
async def test_a_store_that_is_held_is_waited_for(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = await begun(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        beating = asyncio.create_task(run.write(beat()))
        ending = asyncio.create_task(run.end("cancelled", message="SIGTERM"))
        await asyncio.sleep(60)
        assert caplog.text.count("trying again") > 4
        assert not beating.done()
        holder.execute("ROLLBACK")
    await asyncio.gather(beating, ending)
    run.close()

    with Session(read_only_engine(path)) as session:
        assert get_run(session, run_id="run").summary.status == "cancelled"


@in_virtual_time
async def test_a_store_that_is_held_too_long_is_named(path: Path) -> None:
    run, began = await begun(path), now()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            await run.write(beat())
    run.close()
    assert now() - began > LONGEST_AWAY_SECONDS


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
