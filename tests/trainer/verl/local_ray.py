"""Ray of this machine alone, a run's recorder on it, and stores that are held or refuse.

Importing this imports Ray, and no verl.
"""

import functools
import gc
import shlex
import sqlite3
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import ray

from longhaul_core.store.session import open_store
from longhaul_trainer.verl.cpu.lean_ray import lean_ray
from longhaul_trainer.verl.run_recorder import RunRecorder
from store_samples import run_started


@contextmanager
def ray_here(*, python: str) -> Generator[None]:
    """A Ray that ends with the block. Needs the variables of `cpu_run`.

    Args:
        python: What its workers are started with, as a run's are.
    """
    with lean_ray():
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=100 << 20,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"py_executable": shlex.quote(python)},
        )
    try:
        yield
    finally:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            ray.shutdown()
            gc.collect()  # Ray forgets processes that are about to end


@contextmanager
def recorder_of(path: Path) -> Generator[RunRecorder]:
    """The recorder of run "run", which has begun, on the store at `path`; its name is `path`'s."""
    recorder = RunRecorder.start(str(path), name=path.as_posix(), run_id="run", attempt=0)
    recorder.write([run_started()])
    try:
        yield recorder
    finally:
        recorder.close()


@contextmanager
def refusing(path: Path, what: str) -> Generator[None]:
    """A store that refuses `what`, e.g. "UPDATE ON runs", while the block runs."""
    engine = open_store(path)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER refusal BEFORE {what} BEGIN SELECT RAISE(ABORT, 'not now'); END"
        )
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TRIGGER refusal")
        engine.dispose()


@contextmanager
def held(path: Path) -> Generator[Callable[[], object]]:
    """A store that another program holds until the function is called, or the block ends."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield functools.partial(holder.execute, "ROLLBACK")


def wait_for(happened: Callable[[], object], *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
