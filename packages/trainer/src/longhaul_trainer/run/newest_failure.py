"""Why episodes failed, for the message that a run ends with."""

from sqlalchemy.orm import Session

from longhaul_core.errors import AllFailedError
from longhaul_core.store.queries import failures
from longhaul_core.store.session import read_only_engine

__all__ = ["with_newest_failure"]

BEGINNING, END = 200, 1000
"""Characters of a long message: what failed, and how a program's output ends."""


def with_newest_failure(error: AllFailedError, *, store: str, run_id: str) -> AllFailedError:
    """The error, with the cause and the message of the run's newest failed episode.

    Args:
        error: What ends the run.
        store: SQLite file or PostgreSQL URL.
        run_id: Whose episodes; where none has failed, the error is returned as it is.
    """
    engine = read_only_engine(store)
    try:
        with Session(engine) as session:
            rows = failures(session, run_id=run_id, limit=1).rows
    finally:
        engine.dispose()
    if not rows:
        return error
    message = rows[0].message.strip()
    if len(message) > BEGINNING + END:
        message = f"{message[:BEGINNING]}\n…\n{message[-END:]}"
    return AllFailedError(f"{error}. The newest failure is {rows[0].cause}: {message}")
