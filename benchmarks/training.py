"""Prints what a training run costs besides learning: start-up, overhead of a step, memory.

Run: `python benchmarks/training.py [FILE.toml] [--cold]`. Without a file the default run is
trained. `--cold` drops the disk cache first, which needs root. Everything is read from the
run's own store and from the processes it starts; the run is real.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from longhaul_trainer.provenance import describe_host

SAMPLE_SECONDS = 0.5
NAMED = ("gen", "old_log_prob", "update_actor", "update_weights")
"""verl's timers of generation, log-probabilities, update and weight sync."""


def main() -> None:
    """Train once and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default="default")
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    target = arguments.file if arguments.file == "default" else str(Path(arguments.file).absolute())
    if arguments.cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    print(f"machine: {describe_host()}")
    with tempfile.TemporaryDirectory() as folder:
        started = time.time()
        usage = train(target, Path(folder))
        report(Path(folder), started=started, usage=usage, cold=arguments.cold)


class Usage(NamedTuple):
    """What the processes of a run took."""

    peak_bytes: int
    """Most memory that all of them held at once, shared pages counted once."""
    writer_seconds: float
    """Processor time of the store's writer, imports included."""


def train(target: str, folder: Path) -> Usage:
    """Run `trainer train` to its end and watch its processes."""
    process = subprocess.Popen(
        ["uv", "run", "--project", str(Path(__file__).parents[1]), "trainer", "train", target],
        cwd=folder,
    )
    usage = Usage(0, 0.0)
    while not ended_within(process, SAMPLE_SECONDS):
        processes = tree(process.pid)
        usage = Usage(
            max(usage.peak_bytes, sum(map(held_bytes, processes))),
            max(usage.writer_seconds, sum(map(writer_seconds, processes))),
        )
    if process.returncode:
        sys.exit(f"the run ended with {process.returncode}")
    return usage


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end of a process, but not for longer than that."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


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


def writer_seconds(process: psutil.Process) -> float:
    """Processor time of a process if it is the store's writer, else 0."""
    try:
        if not process.name().startswith("ray::_Writer"):
            return 0.0
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def report(folder: Path, *, started: float, usage: Usage, cold: bool) -> None:
    """Print the figures of the run in `folder`."""
    ended = time.time()
    connection = sqlite3.connect(folder / "longhaul.db")
    ((first_reply,),) = connection.execute(
        "SELECT min(e.started_at + s.queue_seconds + s.generate_seconds) "
        "FROM steps s JOIN episodes e ON e.id = s.episode_id WHERE s.step_index = 0"
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
    steps_seconds = sum(t["step"] for t in timings.values() if "step" in t)
    print(
        f"the store's writer: {usage.writer_seconds:.1f} s of one processor, its start included; "
        f"{usage.writer_seconds / steps_seconds:.1%} of the training steps' time"
    )
    print(f"most memory of all processes together: {usage.peak_bytes / 2**30:.1f} GiB")
    connection.close()


if __name__ == "__main__":
    main()
