"""Runs one statement on a store, in a child process behind fences.

Nothing of the statement runs in the caller's process, which keeps its deadline: the child is
killed some seconds after its own fences should have ended the statement. The child gets the store's
address on its standard input, so that no password is seen in the list of processes.
"""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from sqlalchemy.engine import URL

import longhaul_core
from longhaul_core.errors import QueryError, StoreError
from longhaul_core.redaction import redacted
from longhaul_core.sql_box.limits import KILL_SECONDS, START_SECONDS, Fence, QueryLimits
from longhaul_core.sql_box.mistakes import did_you_mean, line_and_column, pointed_at
from longhaul_core.sql_box.relations import column_names, relation_names
from longhaul_core.store.addresses import describe_store, store_url
from longhaul_core.store.session import read_only_address, read_only_engine

__all__ = ["MOST_AT_ONCE", "Cell", "QueryResult", "run_query"]

Cell: TypeAlias = bool | int | float | str | bytes | None

MOST_AT_ONCE = 4
"""Statements of this process."""
WAIT_SECONDS = 10.0

_places = threading.BoundedSemaphore(MOST_AT_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Answer to one statement."""

    columns: tuple[str, ...]
    """Their names, which may repeat."""
    rows: tuple[tuple[Cell, ...], ...]
    truncated: str | None
    """Why there are more rows than these: `rows` or `bytes`, the limit that was reached; None if
    these are all."""
    seconds: float
    """From giving the statement to the database to the last row."""
    num_bytes: int
    """Of the rows, as JSON."""


def run_query(
    store: str | Path | URL, sql: str, *, limits: QueryLimits | None = None
) -> QueryResult:
    """Answer one SELECT.

    Args:
        store: Path or URL of a store. PostgreSQL: of a fenced role (`fenced_role`), since a role
            that owns the tables or is superuser is refused.
        sql: One statement: SELECT, WITH … SELECT or VALUES, over the views and tables of the store.
        limits: What it may take.

    Raises:
        QueryError: The statement is wrong, a fence stopped it, or it went over a limit.
        StoreError: There is no store, its schema is not the one this program knows, or too many
            statements run at once.
    """
    return _run(store, sql, limits=limits or QueryLimits(), without=())


def _run(
    store: str | Path | URL, sql: str, *, limits: QueryLimits, without: Collection[Fence]
) -> QueryResult:
    """`run_query`, less some fences: tests show by it what each of them holds."""
    url = store if isinstance(store, URL) else store_url(store)
    if not sql.strip():
        raise QueryError("the statement is empty: write a SELECT")
    sqlite = url.get_backend_name() == "sqlite"
    request: dict[str, Any] = {
        "dialect": "sqlite" if sqlite else "postgresql",
        "store": _address(url),
        "sql": sql.rstrip().rstrip(";").rstrip() if not without else sql,
        "relations": sorted(relation_names(url.get_backend_name())),
        "limits": asdict(limits),
        "without": sorted(without),
    }
    with _place():
        lines = _answer(request, limits, kills=Fence.KILL not in without)
    return _read(lines, request["sql"], limits, describe_store(url))


def _address(url: URL) -> str:
    if url.get_backend_name() != "sqlite":
        return url.set(drivername="postgresql").render_as_string(hide_password=False)
    read_only_engine(url).dispose()  # refuses what is no store of this schema
    return read_only_address(Path(str(url.database)))


@contextmanager
def _place() -> Generator[None]:
    """One of the few places for statements of this process."""
    if not _places.acquire(timeout=WAIT_SECONDS):
        raise StoreError(
            f"{MOST_AT_ONCE} statements run already, as many as may at once: try again in a while"
        )
    try:
        yield
    finally:
        _places.release()


def _answer(request: dict[str, Any], limits: QueryLimits, *, kills: bool) -> list[str]:
    """What the child wrote, line by line."""
    sqlite = request["dialect"] == "sqlite"
    # Without site-packages, which SQLite does not need, Python starts in a third of the time.
    flags = ["-S", "-s", "-P"] if sqlite else ["-s", "-P"]
    child = subprocess.Popen(
        [sys.executable, *flags, "-m", "longhaul_core.sql_box.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        cwd="/",
        bufsize=0,  # so that what follows the first line is still in the pipe
    )
    try:
        first = _first_line(child, request, within=START_SECONDS if kills else None)
        output, problem = child.communicate(
            timeout=limits.seconds + KILL_SECONDS if kills else None
        )
    except subprocess.TimeoutExpired as error:
        raise QueryError(
            f"no answer within {limits.seconds:g} s, and the statement did not stop by itself: its "
            "process was killed",
            fence=Fence.KILL,
        ) from error
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()
    if child.returncode != 0:
        raise _ended(child.returncode, problem.decode("utf-8", "replace"), limits)
    # A text may hold other ends of lines.
    return [line for line in (first + output).decode("utf-8").split("\n") if line]


def _first_line(
    child: subprocess.Popen[bytes], request: dict[str, Any], *, within: float | None
) -> bytes:
    """Give the child its request, and wait until its statement begins, or is refused.

    Raises:
        QueryError: The child took too long to start; nothing is known of the statement.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    was_late = threading.Event()

    def give_up() -> None:
        was_late.set()
        child.kill()

    timer = threading.Timer(within or 0, give_up)
    if within is not None:
        timer.start()
    try:
        to_child = io.BufferedWriter(cast("io.RawIOBase", child.stdin))
        with suppress(BrokenPipeError), to_child:
            to_child.write(json.dumps(request).encode())
        child.stdin = None  # `communicate` would write there
        line = child.stdout.readline()
    finally:
        timer.cancel()
    if was_late.is_set():
        raise QueryError(
            f"the process of the statement did not start within {within:g} s, as on a machine that "
            "is busy; the statement was not tried: try again"
        )
    return line


def _environment() -> dict[str, str]:
    """What the child needs: where the package is, and where a password may be kept."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "HOME" or (name.startswith("PG") and name != "PGOPTIONS")
    }
    return kept | {"PYTHONPATH": str(Path(longhaul_core.__file__).parents[1])}


def _ended(code: int, problem: str, limits: QueryLimits) -> QueryError:
    """Why a child that wrote no end ended: a limit of the system, or a defect."""
    fences = {signal.SIGXCPU: Fence.CPU, signal.SIGALRM: Fence.ALARM, signal.SIGXFSZ: Fence.FILES}
    if -code in fences:
        return QueryError(
            f"the statement took more than {limits.seconds:g} s and its process was ended",
            fence=fences[signal.Signals(-code)],
        )
    if code == -signal.SIGKILL or "MemoryError" in problem or code == -signal.SIGSEGV:
        return QueryError(
            f"the statement took more than the {limits.memory_bytes / 2**20:,.0f} MiB of memory "
            "that it may take",
            fence=Fence.MEMORY,
        )
    return QueryError(
        f"the statement's process ended by {code}: {redacted(problem.strip()[-1000:])}"
    )


def _read(lines: list[str], sql: str, limits: QueryLimits, where: str) -> QueryResult:
    columns: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        message = cast("dict[str, Any]", json.loads(line))
        match message:
            case {"row": row}:
                rows.append(tuple(_cell(value) for value in row))
            case {"begun": _}:
                continue
            case {"columns": names}:
                columns = tuple(names)
            case {"error": error}:
                raise _error(error, sql)
            case {"end": end}:
                return QueryResult(
                    columns=columns,
                    rows=tuple(rows),
                    truncated=end["truncated"],
                    seconds=end["seconds"],
                    num_bytes=end["bytes"],
                )
            case _:
                raise AssertionError(message)
    raise QueryError(
        f"the answer from {where} broke off; the statement may take "
        f"{limits.memory_bytes / 2**20:,.0f} MiB of memory",
        fence=Fence.MEMORY,
    )


def _cell(value: object) -> Cell:
    if isinstance(value, dict):
        return bytes.fromhex(cast("dict[str, str]", value)["hex"])
    return cast("Cell", value)


def _error(error: dict[str, Any], sql: str) -> QueryError:
    message, position = redacted(str(error["message"])), error["position"]
    if "Perhaps you meant" not in message:  # PostgreSQL's own hint
        message += did_you_mean(message, columns=column_names(), relations=relation_names("sqlite"))
    if position is not None and position <= len(sql):
        line, column = line_and_column(sql, position)
        message = f"{message}\nline {line}, column {column}:\n{pointed_at(sql, position)}"
    fence = error["fence"]
    return QueryError(message, fence=None if fence is None else Fence(fence), position=position)
