"""Export and import take as much memory for many episodes as for few, each in its own process.

A process's peak is looked at, not Python's own count: SQLite's pages and the driver's buffers are
in it too.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from longhaul_core.store import Record, StoreWriter
from longhaul_core.types import Trajectory
from store_samples import make_record, make_task, make_trajectory, run_started

FEW, MANY = 100, 1_000
GROWS_BY = 4.0
"""MiB at most between the two: beyond what allocators leave over, and far below the files."""
TESTS = Path(__file__).parents[2]

EXPORT = """
import resource, sys
from functools import partial
from sqlalchemy.orm import Session
from longhaul_core.exchange import export_episodes, format_named
from longhaul_core.store import read_only_engine
from longhaul_core.store.queries import EpisodeFilter

store, format, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
engine = read_only_engine(store)
where = EpisodeFilter(max_training_step=most)
pieces = export_episodes(
    partial(Session, engine), run_id="run", format=format_named(format), where=where
)
num_bytes = sum(map(len, pieces))
engine.dispose()
print(num_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
IMPORT = """
import resource, sys
from pathlib import Path
from longhaul_core.exchange import ImportSettings, format_named, import_files
from longhaul_core.store import StoreWriter

store, file = sys.argv[1:]
settings = ImportSettings(format=format_named("conversations"), run_id="imported", name="x")
with StoreWriter(store) as writer:
    import_files(writer, Path(file), settings)
print(Path(file).stat().st_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
PADDING = "One sees much, and says nothing of it. " * 100
"""Of each observation: 4 KiB, so that what were kept would be seen."""


def peak(program: str, *arguments: str) -> tuple[float, float]:
    """MiB of the file, and the most that the process had."""
    answer = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        check=True,
        capture_output=True,
        text=True,
    )
    num_bytes, kibibytes = answer.stdout.split()
    return int(num_bytes) / 2**20, int(kibibytes) / 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of one run with an episode of two long steps for each training step."""
    url = str(tmp_path_factory.mktemp("memory") / "store.db")
    with StoreWriter(url) as writer:
        writer.write([run_started()])
        for start in range(1, MANY + 1, 100):
            records: list[Record] = [
                make_record(long_episode(number), training_step=number)
                for number in range(start, start + 100)
            ]
            writer.write(records)
    return url


def long_episode(number: int) -> Trajectory:
    made = make_trajectory(task=make_task(number), rewards=(0.0, 1.0))
    steps = tuple(
        replace(step, observation=replace(step.observation, text=f"{number} {PADDING}"))
        for step in made.steps
    )
    return replace(made, steps=steps)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["atif", "agent_lightning"])
def test_an_exports_memory_does_not_grow_with_the_run(store: str, format: str) -> None:
    small, of_few = peak(EXPORT, store, format, str(FEW))
    large, of_many = peak(EXPORT, store, format, str(MANY))
    assert large > 9 * small
    assert of_many - of_few < GROWS_BY < large - small


@pytest.mark.slow
def test_an_imports_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks: list[float] = []
    sizes: list[float] = []
    for count in (FEW, MANY):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(count):
                said = [
                    {"role": "user", "content": f"{number} {PADDING}{PADDING}"},
                    {"role": "assistant", "content": f"<action>look {number}</action>"},
                ]
                file.write(json.dumps({"messages": said}) + "\n")
        size, most = peak(IMPORT, str(tmp_path / f"{count}.db"), str(path))
        sizes.append(size)
        peaks.append(most)
    assert peaks[1] - peaks[0] < GROWS_BY < sizes[1] - sizes[0]
