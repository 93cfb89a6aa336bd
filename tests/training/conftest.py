"""What runs are forked of, and one undisturbed smoke run for what looks at what a run leaves."""

from collections.abc import Generator
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE
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


@pytest.fixture(autouse=True)
def nothing_outlives_its_test() -> Generator[None]:
    yield
    for process in STARTED:
        if process.poll() is None:
            kill_group(process)


@pytest.fixture(scope="package", autouse=True)
def zygote(request: pytest.FixtureRequest) -> Generator[None]:
    """What every process of every run is forked of, in place of a zygote of each run's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        # Of the runs only the smoke run may be tested, and that starts cold.
        if any(item.get_closest_marker("slow") for item in request.session.items):
            patch.setenv(SHARED_ZYGOTE, str(request.getfixturevalue("forked_python")))
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
