"""A zygote for all runs, and one undisturbed smoke run for what only looks at what a run leaves."""

from collections.abc import Generator
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.preload import LIBRARIES, SHARED_ZYGOTE
from longhaul_trainer.verl.cpu.zygote import Zygote
from longhaul_trainer.verl.variables import prepare_environment
from training.launching import (
    SMOKE,
    STARTED,
    Launched,
    finish,
    kill_group,
    trainer,
    wait_until,
)
from training.listening import looked_at
from verl_process import process_variables

IMPORTED = (*LIBRARIES, "longhaul_trainer.cli.main")
"""The trainer's process is a fork as well; it imports Ray and verl itself."""


@pytest.fixture(autouse=True)
def nothing_outlives_its_test() -> Generator[None]:
    yield
    for process in STARTED:
        if process.poll() is None:
            kill_group(process)


@pytest.fixture(scope="package", autouse=True)
def zygote(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[None]:
    """A process that imports the libraries once for every process of every run.

    Every process has one thread: the other processor may be at work on other tests, and two
    threads that wait for each other on one processor make a training step ten times as long.
    """
    folder = tmp_path_factory.mktemp("zygote")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        if not any(item.get_closest_marker("slow") for item in request.session.items):
            yield  # of the runs only the smoke run is tested, and it starts cold
            return
        with process_variables():
            prepare_environment("cpu", scratch=folder)
            started = Zygote(IMPORTED, folder=folder)
        with started:
            patch.setenv(SHARED_ZYGOTE, str(started.stand_in))
            yield


@pytest.fixture(scope="package")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Started cold, as a user starts it, and looked at by a stranger while it trains."""
    folder: Path = tmp_path_factory.mktemp("smoke")
    process = trainer(folder, "train", str(SMOKE), cold=True)
    wait_until(process, lambda: "step 1 " in (folder / "output.txt").read_text(encoding="utf-8"))
    looked_at(process.pid).write(folder)
    launched = finish(process, folder)
    assert launched.returncode == 0, launched.output
    return launched
