"""Hands leases to the store, behind what happens: no request of a runner waits for SQL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from longhaul_core.clock import now
from longhaul_core.errors import StoreError
from longhaul_core.store.records import LeaseOutcome, LeaseRecord
from longhaul_trainer.play.runners.leases import Lease, Leases, Offer

__all__ = ["Commit", "LeaseLog"]

logger = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 30.0
"""Between two records of who is still heard of."""

Commit = Callable[[Sequence[LeaseRecord]], Awaitable[None]]


class LeaseLog:
    """Records leases as they begin and end, and now and then while they are held."""

    def __init__(self, commit: Commit, *, run_id: str, attempt: int) -> None:
        """Nothing is written yet.

        Args:
            commit: Writes records, and returns when they are in the store.
            run_id: The run.
            attempt: Of the run.
        """
        self._commit = commit
        self._run_id = run_id
        self._attempt = attempt
        self._newest: dict[str, LeaseRecord] = {}
        self._something = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def start(self, leases: Leases) -> None:
        """Write, until `close`."""
        self._writing = asyncio.create_task(self._write(leases))
        self._writing.add_done_callback(_report_defect)

    def note(self, offer: Offer, lease: Lease, outcome: LeaseOutcome | None) -> None:
        """See `leases.OnChange`."""
        at = time.time()
        self._newest[lease.id] = LeaseRecord(
            run_id=self._run_id,
            attempt=self._attempt,
            lease_id=lease.id,
            episode_id=offer.name,
            task_id=offer.task_id,
            runner=lease.runner,
            leased_at=lease.leased_at,
            heard_at=at - (now() - lease.heard_at),
            ended_at=None if outcome is None else at,
            outcome=outcome,
        )
        self._something.set()

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
            self._writing = None
        await self._write_newest()

    async def _write(self, leases: Leases) -> None:
        beat_at = now() + _HEARTBEAT_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(beat_at - now()):
                    await self._something.wait()
            if now() >= beat_at:  # others may begin and end all the time
                for offer, lease in leases.held:
                    self.note(offer, lease, None)
                beat_at = now() + _HEARTBEAT_SECONDS
            await self._write_newest()

    async def _write_newest(self) -> None:
        records = list(self._newest.values())
        self._newest.clear()
        self._something.clear()
        if not records:
            return
        try:
            await self._commit(records)
        except asyncio.CancelledError:  # `close` writes them: the store takes a record twice
            self._newest = {record.lease_id: record for record in records} | self._newest
            raise
        except StoreError as error:  # whatever ends the run is raised for its episodes too
            logger.warning("%d leases are not in the store: %s", len(records), error)


def _report_defect(writing: asyncio.Task[None]) -> None:
    if not writing.cancelled() and (error := writing.exception()) is not None:
        logger.error("leases are no longer recorded", exc_info=error)
