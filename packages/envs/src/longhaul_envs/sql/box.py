"""One SELECT on one SQLite file, in a process that can be ended: whatever the text is, it is safe.

See `child` for the fences inside that process.
"""

import json
import math
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from longhaul_envs.sql.child import CANNOT_OPEN

__all__ = ["Limits", "Refusal", "Result", "Value", "run_query"]

Value = str | int | float | bytes | None

_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a query may take."""

    max_steps: int
    """Of SQLite's machine; the same query ends at the same step everywhere."""
    max_seconds: float
    """Until its process is ended. It should not be what ends a query: it depends on the machine."""
    max_rows: int
    max_bytes: int
    """Of text and blobs, other values counted as 8."""
    max_memory: int = 512 * 1024 * 1024
    """Of the address space of its process, in bytes."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a query gives."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    is_whole: bool
    """False if the limits cut rows off."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A statement that was not run to its end."""

    reason: str


def run_query(
    file: Path, sql: str, limits: Limits, *, allow_clock: bool = False
) -> Result | Refusal:
    """What a statement gives, or why it was refused. The file is unchanged.

    Args:
        file: An SQLite database.
        sql: Any text.
        limits: Beyond which the statement is refused, or its rows are cut off.
        allow_clock: Whether functions of date and time may be called, which can read the clock.

    Raises:
        RuntimeError: The file cannot be opened, or the process failed in another way.
    """
    request = {
        "path": str(file),
        "sql": sql,
        "max_steps": limits.max_steps,
        "max_rows": limits.max_rows,
        "max_bytes": limits.max_bytes,
        "max_memory": limits.max_memory,
        "max_seconds": math.ceil(limits.max_seconds) + 1,
        "allow_clock": allow_clock,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_CHILD)],
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            timeout=limits.max_seconds,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired:  # by now the process is ended
        return Refusal(f"the query takes longer than {limits.max_seconds:g} seconds")
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Refusal("the query takes too much time or memory")
    if done.returncode == CANNOT_OPEN:
        raise RuntimeError(f"the database cannot be opened: {done.stderr.strip()}")
    if done.returncode:
        raise RuntimeError(
            f"the process of a query ended with code {done.returncode}: {done.stderr[-500:]}"
        )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        return Refusal(answer["refused"])
    return Result(
        tuple(answer["columns"]),
        tuple(tuple(map(_value, row)) for row in answer["rows"]),
        answer["is_whole"],
    )


def _value(written: str | float | dict[str, str] | None) -> Value:
    """A value as `child` writes it: a blob is a dictionary."""
    return bytes.fromhex(written["blob"]) if isinstance(written, dict) else written
