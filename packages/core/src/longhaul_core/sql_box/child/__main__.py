"""Run one statement: the request comes on standard input, the answer goes to standard output."""

import math
import resource
import signal
import sys
import time
from collections.abc import Callable

from longhaul_core.sql_box.child.output import Answer, Refused, refuse
from longhaul_core.sql_box.child.request import Request
from longhaul_core.sql_box.limits import KILL_SECONDS, START_SECONDS, Fence

OPEN_FILES = 64


def main() -> None:
    """Answer the request; whatever is wrong with the statement is part of the answer."""
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    request = Request.read(sys.stdin.read())
    limits = request.limits
    if request.has(Fence.ALARM):
        signal.setitimer(signal.ITIMER_REAL, START_SECONDS)
    if request.has(Fence.MEMORY):
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    answer_request(request, begins=lambda: _limit_time(request))


def _limit_time(request: Request) -> None:
    """End this process a second after its caller should have, and by the processor's time too."""
    seconds = request.limits.seconds + KILL_SECONDS + 1
    if request.has(Fence.ALARM):
        signal.setitimer(signal.ITIMER_REAL, seconds)
    if request.has(Fence.CPU):
        last = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (last, last + 1))  # the signal can be told first


def answer_request(request: Request, *, begins: Callable[[], None] | None = None) -> None:
    """Write the answer, within every fence but those that the process is.

    Args:
        request: The statement, and where it runs.
        begins: Is called when the statement begins.
    """
    limits = request.limits
    answer = Answer(
        max_rows=limits.rows if request.has(Fence.ROWS) else math.inf,
        max_bytes=limits.num_bytes if request.has(Fence.BYTES) else math.inf,
        begins=begins,
    )
    try:
        if len(request.sql) > limits.sql_characters and request.has(Fence.SQL_LENGTH):
            raise Refused(
                f"the statement has {len(request.sql):,} characters; "
                f"{limits.sql_characters:,} are allowed",
                fence=Fence.SQL_LENGTH,
            )
        if request.dialect == "sqlite":
            from longhaul_core.sql_box.child import sqlite

            seconds = sqlite.run(request, answer)
        else:
            from longhaul_core.sql_box.child import postgresql

            seconds = postgresql.run(request, answer)
        answer.end(seconds)
    except Refused as error:
        refuse(error)
    except MemoryError:
        refuse(
            Refused(
                f"the answer needs more than the {limits.memory_bytes / 2**20:,.0f} MiB of memory "
                "that a statement may take: ask for fewer columns or rows, or for shorter texts",
                fence=Fence.MEMORY,
            )
        )


if __name__ == "__main__":
    main()
