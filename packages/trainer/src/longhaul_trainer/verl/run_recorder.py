"""The run's recorder: one process that writes records to the store, and handles to it.

The writer is a Ray actor without verl or torch, so that any process of the run, on any
node, can hand it records and go on. It also counts the episodes that it writes: the progress
display reads the counts there instead of asking every worker.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import LOCK_WAIT_SECONDS, is_temporary
from longhaul_core.store.maintenance import cancel_requested, index_text
from longhaul_core.store.records import FATE_OF_GROUP, EpisodeRecord, Heartbeat, Record, RunEnded
from longhaul_core.store.retention import Retention
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Trajectory
from longhaul_trainer.run.store_retries import StoreRetries

logger = logging.getLogger(__name__)

HURRIED_SECONDS = 4.0
"""How long each of a few questions to the writer may take after a SIGTERM."""

Pending = ray.ObjectRef[Any]
"""A result of the writer that has not arrived yet."""

MAX_PENDING = 64
"""Batches on the way before a caller waits: the bound on the memory they take."""

INDEXED_STEPS, LAST_INDEXED_STEPS = 2_000, 20_000
"""Whose text is made findable at each sign of life, and at most at the end: a tenth of a second's
work for a writer that is done with its records, and a second's or two."""


class WriterLost(StoreError):
    """The process that writes the store is gone, or does not answer; records may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCounts:
    """The episodes of one phase of one training step that the writer has written."""

    phase: str
    training_step: int
    num_episodes: int = 0
    num_failed: int = 0
    num_steps: int = 0
    num_action_tokens: int = 0
    total_return: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatus:
    """What the writer reports to the trainer."""

    counts: EpisodeCounts
    cancel_requested: bool
    processor_seconds: float
    """Processor time that the writer's process has taken, its start included."""


class _Writer:
    """Runs in the writer's process."""

    def __init__(self, store: str, run_id: str, attempt: int, sampled_groups: int) -> None:
        self._writer = StoreWriter(store)
        self._maintained = open_store(store)
        self._retention = Retention(self._maintained, run_id=run_id, sampled_groups=sampled_groups)
        self._whole_after: int | None = None
        """The last training step of which something may still have to be removed."""
        self._newest_asked: int | None = None
        """The last training step that `keep_whole` was called with."""
        self._run_id = run_id
        self._attempt = attempt
        self._engine = read_only_engine(store)
        self._counts = EpisodeCounts(phase="", training_step=-1)
        self._retries = StoreRetries()

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            # What is played beside a group's episodes counts as none of them.
            if isinstance(record, EpisodeRecord) and record.phase not in FATE_OF_GROUP[1:]:
                self._counts = _with_episode(self._counts, record)
        self._keep_trying(lambda: self._writer.write(records))
        self._remove_some()

    def keep_whole(self, after: int) -> None:
        self._whole_after = self._newest_asked = after

    def _remove_some(self) -> None:
        """Remove a few episodes' text by retention, if the store can be written now.

        A caller that waits for the writer waits for no more than that.
        """
        try:
            self._remove_a_batch()
        except StoreError as error:
            if not is_temporary(error):
                raise
            logger.warning("retention removed nothing, trying again later: %s", error)

    def _remove_a_batch(self) -> None:
        up_to = self._whole_after
        if up_to is not None and not self._retention.remove_some(up_to=up_to):
            self._whole_after = None

    def _index_some(self, most_steps: int) -> None:
        """Make some text findable, if the store can be written now."""
        try:
            index_text(self._maintained, most_steps=most_steps)
        except StoreError as error:
            if not is_temporary(error):
                raise
            logger.warning("no text was indexed, trying again later: %s", error)

    def alive(self) -> WriterStatus:
        """Write the run's heartbeat, and report the counts and whether the run is cancelled."""
        self._writer.write([Heartbeat(run_id=self._run_id, attempt=self._attempt, at=time.time())])
        self._remove_some()
        self._index_some(INDEXED_STEPS)
        return WriterStatus(
            counts=self._counts,
            cancel_requested=cancel_requested(self._engine, run_id=self._run_id),
            processor_seconds=time.process_time(),
        )

    def flush(self) -> None:
        self._keep_trying(self._writer.flush)

    def _keep_trying(self, action: Callable[[], None]) -> None:
        """Do `action`, over and over while the store is held or away.

        Raises:
            StoreError: See `StoreRetries.pause_after`.
        """
        while True:
            began = time.monotonic()
            try:
                action()
            except StoreError as error:
                pause = self._retries.pause_after(error, began=began, ended=time.monotonic())
                time.sleep(pause)
            else:
                self._retries.took()
                return

    def close(self, patience_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self._retention.begin_anew()
        self._whole_after = self._newest_asked
        while self._whole_after is not None:
            self._keep_trying(self._remove_a_batch)
        self._index_some(LAST_INDEXED_STEPS)
        self._maintained.dispose()
        self._engine.dispose()
        self._writer.close(patience_seconds=patience_seconds)


def _with_episode(counts: EpisodeCounts, record: EpisodeRecord) -> EpisodeCounts:
    if (counts.phase, counts.training_step) != (record.phase, record.training_step):
        counts = EpisodeCounts(phase=record.phase, training_step=record.training_step)
    outcome = record.outcome
    finished = isinstance(outcome, Trajectory)
    return EpisodeCounts(
        phase=counts.phase,
        training_step=counts.training_step,
        num_episodes=counts.num_episodes + finished,
        num_failed=counts.num_failed + (not finished),
        num_steps=counts.num_steps + len(outcome.steps),
        num_action_tokens=counts.num_action_tokens
        + sum(
            len(call.sampled.action_tokens)
            for step in outcome.steps
            for call in step.calls
            if call.sampled is not None
        ),
        total_return=counts.total_return
        + (outcome.episode_return if isinstance(outcome, Trajectory) else 0.0),
    )


class RunRecorder:
    """Hands records to the writer without waiting for the disk."""

    processor_seconds = 0.0
    """What the writer's process has taken, when it last answered."""

    def __init__(self, actor: ActorHandle[Any], *, max_pending: int = MAX_PENDING) -> None:
        self._actor: Any = actor
        self._pending: list[Pending] = []
        self._lock = threading.Lock()
        self._asked: Pending | None = None
        self._silent = False
        self._max_pending = max_pending
        self._places = asyncio.Semaphore(max_pending)

    @classmethod
    def start(
        cls, store: str, *, name: str, run_id: str, attempt: int, sampled_groups: int = 0
    ) -> RunRecorder:
        """Start the writer's process under `name`, on this machine, for one attempt at a run.

        Args:
            store: Path or URL.
            name: Of the process, for `find`.
            run_id: The run.
            attempt: Which start of it.
            sampled_groups: See `keep_whole`.

        Raises:
            StoreError: If the store cannot be opened for writing.
        """
        actor = (
            ray.remote(_Writer)
            .options(
                name=name,
                num_cpus=0,
                max_concurrency=1,
                # SQLite's locks hold on a disk of one machine; on a shared one they may not.
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    node_id=ray.get_runtime_context().get_node_id(), soft=False
                ),
            )
            .remote(store, run_id, attempt, sampled_groups)
        )
        recorder = cls(cast("ActorHandle[Any]", actor))
        recorder.flush()
        return recorder

    @classmethod
    def find(cls, name: str, *, max_pending: int = MAX_PENDING) -> RunRecorder:
        """The recorder that `start` made under `name`.

        Args:
            name: Of the recorder.
            max_pending: Batches of this process on the way before a caller waits.
        """
        return cls(ray.get_actor(name), max_pending=max_pending)

    def put(self, records: Sequence[Record]) -> None:
        """Hand over records, in order; waits only if the writer is far behind.

        Raises:
            StoreError: If the writer failed on earlier records.
        """
        if not records:
            return
        with self._lock:
            done, self._pending = _settled(self._pending)
            if len(self._pending) >= self._max_pending:
                ray.wait(self._pending, num_returns=1)
            self._pending.append(self._actor.write.remote(list(records)))
        _raise_failures(done)

    def settle(self, *, within_seconds: float | None = None) -> None:
        """Wait until everything that this process has `put` is committed.

        Raises:
            StoreError: If the writer failed on any of it, or was not done within that time.
        """
        with self._lock:
            pending, self._pending = self._pending, []
        _raise_failures(pending, within_seconds=within_seconds)

    def write(self, records: Sequence[Record]) -> None:
        """Hand over records and wait until they are committed.

        Raises:
            StoreError: If the writer failed on them.
        """
        if records:
            _raise_failures([self._actor.write.remote(list(records))])

    async def commit(self, records: Sequence[Record]) -> None:
        """As `write`, while the event loop goes on; batches beyond its bound are not sent yet.

        Raises:
            StoreError: If the writer failed on them.
        """
        if not records:
            return
        async with self._places:
            # Long episodes are pickled beside the event loop.
            pending = await asyncio.to_thread(self._actor.write.remote, list(records))
            with _failures_by_name():
                await pending

    def keep_whole(self, *, after: int) -> None:
        """Let the writer remove, little by little, text and tokens of training steps up to `after`.

        Groups that `sampled_groups` drew stay whole, and those that no training step has decided
        on wait.

        Raises:
            StoreError: If the writer failed on earlier records.
        """
        with self._lock:
            done, self._pending = _settled(self._pending)
            self._pending.append(self._actor.keep_whole.remote(after))
        _raise_failures(done)

    def flush(self, *, within_seconds: float | None = None) -> None:
        """Wait until what this process has `put` is committed, and would survive a loss of power.

        Raises:
            StoreError: If the writer failed, or was not done within twice that time.
        """
        self.settle(within_seconds=within_seconds)
        _raise_failures([self._actor.flush.remote()], within_seconds=within_seconds)

    def alive(self) -> WriterStatus | None:
        """Write the run's heartbeat, and return the writer's status.

        Returns:
            None if the writer is busy, or could not write this time; the log then has the reason,
            once until it answers again.
        """
        try:
            if self._asked is None:
                self._asked = self._actor.alive.remote()
            done, _ = ray.wait([self._asked], timeout=0.2)
            if not done:
                return None
            self._asked = None
            status: WriterStatus = ray.get(done[0])
        except RayError as error:
            # A lasting error is raised, with its cause, for the next record.
            if not self._silent:
                reason = error.cause if isinstance(error, RayTaskError) else error
                logger.warning("the run could not give a sign of life, trying again: %s", reason)
            self._silent = True
            return None
        self._silent = False
        self.processor_seconds = status.processor_seconds
        return status

    def end(self, ended: RunEnded, *, store: str, hurry: bool = False) -> None:
        """Write how the run ended, and end the writer's process.

        This process writes it where that one is gone, as after a SIGTERM to both.

        Args:
            ended: A run that lost records did not finish, and is stored as failed.
            store: What the writer was started with.
            hurry: Wait for the writer for seconds alone: who sent SIGTERM may send SIGKILL soon.

        Raises:
            StoreError: If the writer failed on earlier records, or if it is gone with records of a
                run that would have finished.
        """
        limit = HURRIED_SECONDS if hurry else None
        lost: WriterLost | None = None
        try:
            self.settle(within_seconds=limit)
        except WriterLost as error:
            lost = error
            logger.warning("records of the run's last seconds may be lost: %s", error)
            if ended.status == "finished":
                ended = replace(ended, status="failed", message=str(error))
        try:
            if lost is None:
                self.put([ended])
                self.close(within_seconds=limit)
                return
        except WriterLost as error:
            logger.warning("the end of the run is written by its own process: %s", error)
        write_here(store, [ended])
        if lost is not None and ended.status == "failed":
            raise lost

    def close(self, *, within_seconds: float | None = None) -> None:
        """Flush and end the writer's process.

        Raises:
            StoreError: If the writer failed, or was not done within a few times `within_seconds`.
        """
        self.flush(within_seconds=within_seconds)
        patience = LOCK_WAIT_SECONDS if within_seconds is None else within_seconds / 2
        _raise_failures([self._actor.close.remote(patience)], within_seconds=within_seconds)
        ray.kill(self._actor)


def write_here(store: str, records: Sequence[Record]) -> None:
    """Commit records from this process, where the writer's is gone.

    Raises:
        StoreError: The store refused.
    """
    writer = StoreWriter(store)
    try:
        writer.write(records)
        writer.flush()
    finally:
        writer.close(patience_seconds=HURRIED_SECONDS / 2)


def _settled(pending: list[Pending]) -> tuple[list[Pending], list[Pending]]:
    if not pending:
        return [], []
    return ray.wait(pending, num_returns=len(pending), timeout=0)


def _raise_failures(settled: Sequence[Pending], *, within_seconds: float | None = None) -> None:
    with _failures_by_name():
        ray.get(list(settled), timeout=within_seconds)


@contextmanager
def _failures_by_name() -> Generator[None]:
    """Raise the writer's own error, or that it is gone."""
    try:
        yield
    except RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except RayError as error:  # of the actor's death, of all of Ray, or that it takes too long
        raise WriterLost(f"the process that writes the store is gone: {error}") from error
