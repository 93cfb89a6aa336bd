"""Writes `store.db.gz`, a small store of the newest schema, in place of that of the one before.

    uv run python tests/golden/make_store.py

What is written differently from then on is not seen by the tests that read the file.
"""

import gzip
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from longhaul_core.store import (
    Evaluation,
    Metrics,
    RunEnded,
    StoreWriter,
    TokenPieces,
    maintenance,
    open_store,
)
from longhaul_core.store.models import SCHEMA_VERSION
from longhaul_core.store.schema import VERSION_TABLE
from longhaul_core.types import Split
from store_samples import (
    make_audit,
    make_credit,
    make_decisions,
    make_failure,
    make_lease,
    make_loss_input,
    make_program,
    make_record,
    make_training_step,
    run_started,
)


def main() -> None:
    target = Path(__file__).parent / "store.db.gz"
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(gzip.decompress(target.read_bytes()))
        [(version,)] = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}")
    if version == SCHEMA_VERSION:
        raise SystemExit(f"{target} has schema {version}: a new one has a new SCHEMA_VERSION")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        write_sample(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def write_sample(path: Path) -> None:
    """Two attempts: training steps 1 and 2, then 2 again after a resume, and a failure."""
    with StoreWriter(path) as writer:
        for attempt, training_steps in ((0, (1, 2)), (1, (2,))):
            writer.write([run_started(attempt=attempt, resumes_after=attempt or None)])
            for training_step in training_steps:
                episodes = make_training_step(training_step, attempt=attempt, group_size=3)
                writer.write(
                    [
                        *episodes,
                        *make_decisions(episodes),
                        *(make_credit(episode) for episode in episodes),
                        *(make_loss_input(episode) for episode in episodes),
                    ]
                )
        writer.write(
            [
                make_record(make_failure(), attempt=1, training_step=2, group_index=1, retry=1),
                make_record(make_program(), attempt=1, phase="validation", training_step=2),
                Metrics(run_id="run", attempt=1, training_step=2, values={"loss": 0.25}),
                Evaluation(
                    run_id="run",
                    attempt=1,
                    training_step=2,
                    panel="fixed",
                    split=Split.VALIDATION,
                    num_episodes=6,
                    mean_return=0.5,
                    success_rate=0.5,
                ),
                make_audit(),
                make_lease(attempt=1),
                TokenPieces(run_id="run", pieces={7: b"go"}),
                RunEnded(
                    run_id="run", attempt=1, status="finished", message="", ended_at=1_760_000_900.0
                ),
            ]
        )
    engine = open_store(path)
    maintenance.index_text(engine)
    engine.dispose()


if __name__ == "__main__":
    main()
