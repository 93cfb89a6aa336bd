"""The audit that every attempt at a run makes of its first training step.

A mistake in what is trained shows there as well as after a thousand training steps, and costs
one. The audit reads the store from a thread of its own while the run goes on. It may find
something, or not be possible: both are reported, and neither ends the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.errors import LonghaulError
from longhaul_core.store.records import Record
from longhaul_core.store.session import read_only_engine

MAX_REPORTED = 3
"""Findings of a rule that are reported one by one; further ones are counted in the store."""
LONGEST_WAIT_SECONDS = 60.0
"""How long a run that is over waits for its audit."""

Warn = Callable[[str], None]
Write = Callable[[Sequence[Record]], None]


def audit_training_step(
    store: str, *, run_id: str, training_step: int, write: Write, warn: Warn
) -> None:
    """Audit one training step, keep the result, and report what it found.

    Args:
        store: Path or URL; everything of the training step is in it.
        run_id: The run.
        training_step: Which.
        write: Puts the result into the store.
        warn: Reports one thing to a person.
    """
    try:
        engine = read_only_engine(store)
        try:
            with Session(engine) as session:
                report = audit_run(
                    session, run_id, training_steps=[training_step], max_listed=MAX_REPORTED
                )
        finally:
            engine.dispose()
        write([report.to_record(audited_at=time.time())])
    except (LonghaulError, LookupError, SQLAlchemyError) as error:
        warn(f"the audit was not possible: {error}")
        return
    for finding in report.findings:
        warn(f"the audit found {one_line(finding)}")
    if not report.clean:
        warn(f"{report.num_findings:,} findings in all; `trainer audit {run_id}` lists them")


def start_audit(
    store: str, *, run_id: str, training_step: int, write: Write, warn: Callable[[int, str], None]
) -> threading.Thread:
    """Begin the audit of a training step whose records are all in the store; returns at once.

    Args:
        store: Path or URL.
        run_id: The run.
        training_step: Which.
        write: Puts the result into the store; called from the thread.
        warn: Reports one thing about a training step to a person; called from the thread.

    Returns:
        The thread; it does not keep the process alive.
    """

    def audit() -> None:
        audit_training_step(
            store,
            run_id=run_id,
            training_step=training_step,
            write=write,
            warn=lambda text: warn(training_step, text),
        )

    thread = threading.Thread(target=audit, name="audit", daemon=True)
    thread.start()
    return thread
