"""Tests for `longhaul_trainer.verl.plugin`: how a worker of Ray ends."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

RAYS_WORKER = Path("_private", "workers", "default_worker.py")
PROGRAM = """
import atexit, ctypes, sys

c = ctypes.CDLL(None)
c.on_exit(ctypes.cast(c.abort, ctypes.c_void_p), None)  # in the place of Ray's handler
from longhaul_trainer.verl.plugin import register

register()
atexit.register(print, "what Python does at its end")
sys.exit(3)
"""


@pytest.mark.parametrize(("name", "status"), [(RAYS_WORKER.name, 3), ("another.py", -6)])
def test_a_worker_of_ray_ends_when_python_has_with_its_status(
    pythons: Pythons, tmp_path: Path, name: str, status: int
) -> None:
    (tmp_path / name).write_text(PROGRAM, encoding="utf-8")

    ended = subprocess.run(
        [pythons.verl, str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (status, "what Python does at its end\n"), (
        ended.stderr
    )


def test_ray_has_that_program() -> None:
    found = find_spec("ray")

    assert found is not None
    (folder,) = found.submodule_search_locations or [""]
    assert (Path(folder) / RAYS_WORKER).is_file()
