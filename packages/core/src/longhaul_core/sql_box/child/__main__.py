"""Run one statement: the request comes on standard input, the answer goes to standard output."""

import math
import resource
import signal
import sys

from longhaul_core.sql_box.child.answers import Answer, Refused, refuse
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
        signal.alarm(math.ceil(START_SECONDS + limits.seconds + KILL_SECONDS) + 1)
    if request.has(Fence.CPU):
        seconds = math.ceil(START_SECONDS + limits.seconds + KILL_SECONDS) + 1
        resource.setrlimit(
            resource.RLIMIT_CPU, (seconds, seconds + 1)
        )  # the signal that can be told first
    if request.has(Fence.MEMORY):
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    answer_request(request)


def answer_request(request: Request) -> None:
    """Write the answer, within every fence but those that the process is."""
    limits = request.limits
    answer = Answer(
        max_rows=limits.rows if request.has(Fence.ROWS) else math.inf,
        max_bytes=limits.num_bytes if request.has(Fence.BYTES) else math.inf,
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
