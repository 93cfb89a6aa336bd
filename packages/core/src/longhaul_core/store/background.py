"""`StoreWriter` in a process of its own, for use without Ray.

    caller ── records, pickled, over a socket ──► writer process ── transactions ──► store
           ◄── one answer per request ──

The caller pays for pickling only. At most `max_backlog` batches are on their way; one more
`write` waits (back-pressure), so memory stays bounded when the disk is slow.

The one decision to know: the process is started as a plain Python program in a session
of its own, not by `multiprocessing`. It imports nothing of the caller's main module, Ctrl-C in
the terminal does not reach it, and when the caller dies, however it dies, the socket ends:
the process writes what it has received and exits. The store's address, which may hold a
password, goes over the socket, where no list of processes shows it.
"""

import atexit
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.engine import URL

from longhaul_core.errors import StoreError
from longhaul_core.store.addresses import describe_store, store_url
from longhaul_core.store.records import Record
from longhaul_core.store.writer import StoreWriter

__all__ = ["BackgroundWriter", "serve"]


@dataclass(frozen=True, slots=True)
class _Open:
    address: str


@dataclass(frozen=True, slots=True)
class _Write:
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class _Supersede:
    run_id: str
    after_training_step: int


@dataclass(frozen=True, slots=True)
class _Flush:
    pass


_Request = _Open | _Write | _Supersede | _Flush


@dataclass(frozen=True, slots=True)
class _Answer:
    error: str | None = None


class BackgroundWriter:
    """Writes records to a store from a process of its own. Safe to use by several threads.

    An error of the store is raised by the next call, and by every one after it: what was
    sent since may not be in the store.
    """

    def __init__(self, store: str | Path | URL, *, max_backlog: int = 16) -> None:
        """Start the process and open the store.

        Args:
            store: A path or URL, see `store_url`.
            max_backlog: Batches on their way at most; one more `write` waits.

        Raises:
            StoreError: See `open_store`.
        """
        if max_backlog < 1:
            raise ValueError(f"max_backlog must be at least 1, got {max_backlog}")
        url = store if isinstance(store, URL) else store_url(store)
        self._where = describe_store(url)
        self._max_backlog = max_backlog
        self._num_unanswered = 0
        self._failure: str | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    f"from {__name__} import serve; serve({theirs.fileno()})",
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        # A caller that forgets to close must not leave before everything is written.
        atexit.register(self._end)
        try:
            with self._lock:
                self._send(_Open(url.render_as_string(hide_password=False)))
                self._await_answers(at_most=0)
        except BaseException:
            self._end()
            raise

    def write(self, records: Iterable[Record]) -> None:
        """Send `records` to be written in one transaction; waits only if the backlog is full.

        Raises:
            StoreError: This or an earlier batch could not be written.
        """
        batch = tuple(records)
        if not batch:
            return
        with self._lock:
            self._check()
            self._await_answers(at_most=self._max_backlog - 1)
            self._send(_Write(batch))

    def supersede(self, run_id: str, after_training_step: int) -> None:
        """As `StoreWriter.supersede`; returns when it is done."""
        with self._lock:
            self._check()
            self._send(_Supersede(run_id, after_training_step))
            self._await_answers(at_most=0)

    def flush(self) -> None:
        """Return once everything sent is in the store and would survive the loss of power.

        Raises:
            StoreError: Something could not be written.
        """
        with self._lock:
            self._check()
            self._send(_Flush())
            self._await_answers(at_most=0)

    def check(self) -> None:
        """Do nothing if all is well.

        Raises:
            StoreError: A batch could not be written, or the process is gone.
        """
        with self._lock:
            self._check()

    def close(self) -> None:
        """Write what is on its way and end the process. Safe to call twice.

        Raises:
            StoreError: Something could not be written.
        """
        already = self._closed
        self._end()
        if self._failure is not None and not already:
            raise StoreError(self._failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:  # the first error is the one to show
            self._end()

    def _check(self) -> None:
        if self._closed:
            raise StoreError(f"the writer of {self._where} is closed")
        self._receive_ready()
        if self._failure is None and self._process.poll() is not None:
            self._lost()
        if self._failure is not None:
            raise StoreError(self._failure)

    def _send(self, request: _Request) -> None:
        try:
            self._connection.send(request)
        except OSError:
            self._lost()
            raise StoreError(str(self._failure)) from None
        except BaseException:
            # Ctrl-C may have cut the message in half: nothing may follow it.
            self._failure = f"writing to {self._where} was interrupted"
            raise
        self._num_unanswered += 1

    def _await_answers(self, *, at_most: int) -> None:
        """Wait until no more than `at_most` requests are unanswered."""
        self._receive_ready()
        while self._num_unanswered > at_most and self._failure is None:
            self._receive()
        if self._failure is not None:
            raise StoreError(self._failure)

    def _receive_ready(self) -> None:
        while self._num_unanswered and self._failure is None and self._connection.poll():
            self._receive()

    def _receive(self) -> None:
        try:
            answer: _Answer = self._connection.recv()
        except (EOFError, OSError):
            self._lost()
            return
        except BaseException:
            self._failure = f"waiting for the writer of {self._where} was interrupted"
            raise
        self._num_unanswered -= 1
        if answer.error is not None:
            self._failure = answer.error

    def _lost(self) -> None:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self._failure = (
            f"the writer process of {self._where} ended early (exit status {code}); "
            f"{self._num_unanswered} batches were not confirmed and may not be in the store"
        )

    def _end(self) -> None:
        """End the process after it has written what it received, and note what went wrong."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self._end)
            try:
                while self._num_unanswered and self._failure is None:
                    self._receive()
            finally:
                self._connection.close()  # the process sees the end, finishes and exits
                self._process.wait()


def serve(descriptor: int) -> None:
    """Answer requests on a socket until its other side is gone: the writer process.

    Args:
        descriptor: The socket, inherited from the caller.
    """
    connection = Connection(descriptor)
    # The caller decides when to stop: by closing the connection, or by dying.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
    threading.Thread(target=_receive_requests, args=(connection, requests), daemon=True).start()
    writer: StoreWriter | None = None
    failure: str | None = None
    while (request := requests.get()) is not None:
        if failure is None:
            try:
                writer = _carry_out(request, writer)
            except StoreError as error:
                failure = str(error)
        with suppress(OSError):  # the caller may be gone; what it sent is still written
            connection.send(_Answer(failure))
    if writer is not None:
        writer.close()


def _receive_requests(
    connection: Connection, requests: "queue.SimpleQueue[_Request | None]"
) -> None:
    """Take requests off the socket while the writer is busy, so that the caller is not."""
    while True:
        try:
            requests.put(connection.recv())
        except (EOFError, OSError):
            requests.put(None)
            return


def _carry_out(request: _Request, writer: StoreWriter | None) -> StoreWriter:
    if isinstance(request, _Open):
        return StoreWriter(request.address)
    assert writer is not None, "the first request opens the store"
    match request:
        case _Write():
            writer.write(request.records)
        case _Supersede():
            writer.supersede(request.run_id, request.after_training_step)
        case _Flush():
            writer.flush()
    return writer
