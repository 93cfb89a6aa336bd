"""verl in a test, as a process of a CPU run has it; the environment is put back afterwards."""

import os
import sys
from collections.abc import Generator

import pytest

from longhaul_trainer.verl.variables import prepare_environment


@pytest.fixture(scope="module")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """The variables of a CPU run, set before verl is imported."""
    variables, path = dict(os.environ), list(sys.path)
    prepare_environment("cpu", scratch=tmp_path_factory.mktemp("scratch"))
    yield
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
