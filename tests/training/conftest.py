"""One undisturbed smoke run, shared by everything that only looks at what a run leaves."""

from collections.abc import Generator
from pathlib import Path

import pytest

from training.launching import SMOKE, STARTED, Launched, kill_group, run


@pytest.fixture(autouse=True)
def nothing_outlives_its_test() -> Generator[None]:
    yield
    for process in STARTED:
        if process.poll() is None:
            kill_group(process)


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder: Path = tmp_path_factory.mktemp("smoke")
    launched = run(folder, "train", str(SMOKE))
    assert launched.returncode == 0, launched.output
    return launched
