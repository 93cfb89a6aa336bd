"""Prints what a training run costs besides learning: start-up, overhead of a step, memory.

Run: `python benchmarks/training.py [FILE.toml] [--cold] [--keep FOLDER]`. Without a file the
default run is trained. `--cold` drops the disk cache first, which needs root; `--keep` leaves the
run and its store in a folder. Everything is read from the
run's own store and from the processes it starts; the run is real.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from longhaul_trainer.run.provenance import describe_host

SAMPLE_SECONDS = 2.0
NAMED = ("gen", "old_log_prob", "update_actor", "update_weights")
"""verl's timers of generation, log-probabilities, update and weight sync."""


def main() -> None:
    """Train once and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default="default")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder for the run and its store")
    arguments = parser.parse_args()
    target = arguments.file if arguments.file == "default" else str(Path(arguments.file).absolute())
    if arguments.cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    print(f"machine: {describe_host()}")
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        started = time.time()
        peak_bytes = train(target, folder)
        report(folder, started=started, peak_bytes=peak_bytes, cold=arguments.cold)


def train(target: str, folder: Path) -> int:
    """Run `trainer train` to its end.

    Returns:
        Most memory that its processes held at once, in bytes, shared pages counted once.
    """
    process = subprocess.Popen(
        ["uv", "run", "--project", str(Path(__file__).parents[1]), "trainer", "train", target],
        cwd=folder,
    )
    peak_bytes = 0
    while process.poll() is None:
        peak_bytes = max(peak_bytes, sum(map(held_bytes, tree(process.pid))))
        with suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE_SECONDS)
    if process.returncode:
        sys.exit(f"the run ended with {process.returncode}")
    return peak_bytes


def tree(pid: int) -> list[psutil.Process]:
    """A process and all it started."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def held_bytes(process: psutil.Process) -> int:
    """Memory of a process, shared pages divided among those that share them."""
    try:
        return process.memory_full_info().pss
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def report(folder: Path, *, started: float, peak_bytes: int, cold: bool) -> None:
    """Print the figures of the run in `folder`."""
    ended = time.time()
    connection = sqlite3.connect(folder / "longhaul.db")
    ((first_reply,),) = connection.execute(
        "SELECT min(e.started_at + c.queue_seconds + c.generate_seconds) FROM calls c "
        "JOIN episodes e ON e.id = c.episode_id WHERE c.step_index = 0 AND c.call_index = 0"
    )
    print(
        f"start to the first reply of an episode: {first_reply - started:.1f} s "
        f"({'cold' if cold else 'warm'} disk cache)"
    )
    timings: dict[int, dict[str, float]] = {}
    for step, name, value in connection.execute(
        "SELECT training_step, name, value FROM metrics WHERE name LIKE 'timing_s/%'"
    ):
        timings.setdefault(step, {})[name.removeprefix("timing_s/")] = value
    whole = sum(t["step"] - t.get("save_checkpoint", 0.0) for t in timings.values() if "step" in t)
    named = sum(t.get(name, 0.0) for t in timings.values() for name in NAMED)
    print(
        f"a training step takes {whole / len(timings):.2f} s; outside generation, "
        f"log-probabilities, update and weight sync: {(whole - named) / whole:.1%}"
    )
    for name in NAMED:
        mean = sum(t.get(name, 0.0) for t in timings.values()) / len(timings)
        print(f"  {name}: {mean:.2f} s")
    print(f"the whole run: {(ended - started) / 60:.1f} min")
    writer = dict(
        connection.execute(
            "SELECT training_step, value FROM metrics WHERE name = 'store/writer_seconds'"
        )
    )
    first, last = min(writer), max(writer)
    during = sum(t["step"] for step, t in timings.items() if step > first)
    print(
        f"the store's writer: {(writer[last] - writer[first]) / during:.1%} of one processor "
        f"over training steps {first + 1} to {last}"
    )
    print(f"most memory of all processes together: {peak_bytes / 2**30:.1f} GiB")
    connection.close()


if __name__ == "__main__":
    main()
