"""How fast a run is audited from its store.

    uv run python benchmarks/audit.py [--training-steps N]

Training steps of 16 groups of 8 episodes with up to 32 steps, whose replies have up to 200
tokens; credited by GiGPO, with what the loss read of each step. Prints the speed in steps a second
of one process, reading included, and the memory that the audit took.
"""

import argparse
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from sqlalchemy.orm import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from store_writer import describe_machine

from audited_run import RUN, make_config, play, run_started
from longhaul_core.audit import AuditReport, audit_run
from longhaul_core.store import StoreWriter, read_only_engine

CONFIG = make_config(
    num_training_steps=1000,
    tasks_per_training_step=16,
    rollout__group_size=8,
    rollout__horizon=32,
)


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description="Measure the audit.")
    parser.add_argument("--training-steps", type=int, default=8)
    arguments = parser.parse_args()
    print(f"machine: {describe_machine()}")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "benchmark.db")
        with StoreWriter(store) as writer:
            writer.write([run_started(CONFIG)])
            for training_step in range(1, arguments.training_steps + 1):
                writer.write(play(CONFIG, training_step, most_tokens=200).records())
        wall, cpu = time.perf_counter(), time.process_time()
        report = audited(store)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        tracemalloc.start()
        audited(store)
        _, peak = tracemalloc.get_traced_memory()
    assert report.clean, report.findings
    checks = sum(rule.num_checked for rule in report.rules)
    print(
        f"audit: {report.num_steps / wall:,.0f} steps/s ({report.num_steps / cpu:,.0f} per CPU "
        f"second), {report.num_steps:,} steps of {len(report.training_steps)} training steps"
    )
    print(f"       {checks:,} checks by {len(report.rules)} rules; peak {peak / 2**20:,.0f} MiB")


def audited(store: str) -> AuditReport:
    """The audit of the run in the store."""
    engine = read_only_engine(store)
    with Session(engine) as session:
        report = audit_run(session, RUN)
    engine.dispose()
    return report


if __name__ == "__main__":
    main()
