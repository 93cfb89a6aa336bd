"""A run that plays in this process alone, and its records in the store: no learner, no engine."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from longhaul_core.clock import now
from longhaul_core.errors import StoreError
from longhaul_core.store.maintenance import cancel_requested
from longhaul_core.store.records import Heartbeat, Record, RunEnded, RunKind, RunStarted
from longhaul_core.store.session import read_only_engine
from longhaul_core.store.writer import StoreWriter
from longhaul_trainer.run.store_retries import StoreRetries

__all__ = ["StoredRun"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

BEAT_SECONDS = 5.0
"""Between two signs of life."""


class StoredRun:
    """Writes the records of one run, which nothing resumes, one batch after the other.

    Where another program holds the store, or its server is away, it tries again for minutes.
    """

    def __init__(self, store: str, *, run_id: str) -> None:
        """Open the store, creating or upgrading it.

        Raises:
            StoreError: It cannot be opened for writing.
        """
        self._writer = StoreWriter(store)
        self._reader = read_only_engine(store)
        self._turn = asyncio.Lock()
        self._writing = threading.Lock()
        """Held in a thread that writes; it goes on where whoever waits for it is cancelled."""
        self._retries = StoreRetries()
        self._is_patient = True
        self.run_id = run_id

    async def start(
        self, *, name: str, kind: RunKind = "evaluate", config_json: str, provenance_json: str
    ) -> None:
        """Write that the run has begun.

        Raises:
            StoreError: The store refused.
        """
        started = RunStarted(
            run_id=self.run_id,
            name=name,
            kind=kind,
            attempt=0,
            config_json=config_json,
            provenance_json=provenance_json,
            started_at=time.time(),
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        await self.write([started])

    async def write(self, records: Sequence[Record]) -> None:
        """Return when the records are committed.

        Raises:
            StoreError: The store refused.
        """
        await self._tried(lambda: self._writer.write(records))

    async def until_cancelled(self) -> None:
        """Give signs of life; return when the run is cancelled from another terminal.

        Raises:
            StoreError: The store refused.
        """
        while not await self._tried(lambda: cancel_requested(self._reader, run_id=self.run_id)):
            await self.write([Heartbeat(run_id=self.run_id, attempt=0, at=time.time())])
            await asyncio.sleep(BEAT_SECONDS)

    async def end(
        self, status: Literal["finished", "failed", "cancelled"], *, message: str = ""
    ) -> None:
        """Write how the run ended, and wait until it would survive a loss of power.

        Raises:
            StoreError: The store refused.
        """
        ended = RunEnded(
            run_id=self.run_id, attempt=0, status=status, message=message, ended_at=time.time()
        )
        await self.write([ended])
        await self._tried(self._writer.flush)

    @asynccontextmanager
    async def recording_failure(self) -> AsyncGenerator[None]:
        """Have the run end as failed where the block raises.

        Cancelled, as by a second Ctrl-C, it ends as cancelled, and the store is tried once.
        """
        try:
            yield
        except asyncio.CancelledError:
            self._is_patient = False
            try:
                await self.end("cancelled", message="Ctrl-C")
            except StoreError as error:
                logger.warning("the store does not have how the run ended: %s", error)
            raise
        except BaseException as error:
            await self.end("failed", message=f"{type(error).__name__}: {error}")
            raise

    async def _tried(self, action: Callable[[], ResultT]) -> ResultT:
        """The result of `action`, which is done over and over while the store is held or away."""

        def alone() -> ResultT:
            with self._writing:
                return action()

        async with self._turn:
            while True:
                began = now()
                try:
                    result = await asyncio.to_thread(alone)
                except StoreError as error:
                    if not self._is_patient:
                        raise
                    await asyncio.sleep(self._retries.pause_after(error, began=began, ended=now()))
                else:
                    self._retries.took()
                    return result

    def close(self) -> None:
        """Release the store."""
        self._writer.close()
        self._reader.dispose()
