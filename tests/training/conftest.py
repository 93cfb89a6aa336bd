"""What runs are forked of, and one undisturbed smoke run for what looks at what a run leaves."""

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.preload import LIBRARIES, OWN, SHARED_ZYGOTE
from longhaul_trainer.verl.cpu.zygote import Zygote
from longhaul_trainer.verl.variables import prepare_environment
from training.launching import (
    FORKED_TRAINER,
    SMOKE_RUN,
    STARTED,
    Launched,
    finish,
    kill_group,
    trainer,
    wait_until,
)
from training.listening import looked_at
from verl_process import process_variables

CLIENTS = (
    "openai.resources.chat",
    "anthropic.resources.messages",
    "google.genai",
    "pydantic_ai.models.openai",
    "longhaul",
)
"""What the programs of examples and guides import."""


@pytest.fixture(autouse=True)
def nothing_outlives_its_test() -> Generator[None]:
    yield
    for process in STARTED:
        if process.poll() is None:
            kill_group(process)


@pytest.fixture(scope="package", autouse=True)
def forked(request: pytest.FixtureRequest) -> Generator[None]:
    """Every process of a run that is not cold is a fork of one that has imported what it needs.

    The trainers are forks of a fork: Ray reads a worker's variables while it is imported, so no
    worker can be forked of a process that has imported Ray.

    Every process has one thread: the other processor may be at work on other tests, and two
    threads that wait for each other on one processor make a training step ten times as long.
    """
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("OMP_NUM_THREADS", "1")
        # Of the runs only the smoke run may be tested, and that starts cold.
        if any(item.get_closest_marker("slow") for item in request.session.items):
            folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("zygotes")
            with process_variables():
                prepare_environment("cpu", scratch=folder)
                workers = stack.enter_context(Zygote(LIBRARIES, folder=folder / "workers"))
                trainers = Zygote(
                    ("longhaul_trainer.cli.main", *OWN), folder=folder / "trainers", fork_of=workers
                )
            stack.enter_context(trainers)
            patch.setenv(SHARED_ZYGOTE, str(workers.stand_in))
            patch.setenv(FORKED_TRAINER, str(trainers.stand_in))
        yield


@pytest.fixture(scope="package")
def agents_python(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A Python for programs: each is a fork of one process that has imported what they call by."""
    with Zygote(CLIENTS, folder=tmp_path_factory.mktemp("agents")) as zygote:
        yield zygote.stand_in


@pytest.fixture(scope="package")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Started cold, as a user starts it, and looked at by a stranger while it trains."""
    folder: Path = tmp_path_factory.mktemp("smoke")
    process = trainer(folder, *SMOKE_RUN, cold=True)
    wait_until(process, lambda: "step 1 " in (folder / "output.txt").read_text(encoding="utf-8"))
    looked_at(process.pid).write(folder)
    launched = finish(process, folder)
    assert launched.returncode == 0, launched.output
    return launched
