"""The libraries that a CPU run imports ahead are there, and leave Ray and verl alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.preload import LIBRARIES

PROGRAM = """
import importlib, sys
from pathlib import Path
from longhaul_trainer.verl.variables import prepare_environment

scratch, *libraries = sys.argv[1:]
prepare_environment("cpu", scratch=Path(scratch))
for name in libraries:
    importlib.import_module(name)
    for too_early in ("ray", "verl"):
        assert too_early not in sys.modules, f"{name} imports {too_early}"
"""


@pytest.mark.slow
def test_none_of_them_imports_ray_or_verl(tmp_path: Path) -> None:
    """Ray reads settings of its process while it is imported, so a fork must import it itself."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *LIBRARIES],
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ended.returncode == 0, ended.stderr
