"""Tests for `longhaul_trainer.verl.cpu.begin_worker`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu import lean_ray

WORKER = "import os, sys; print(sys.argv[1:], os.environ.get('WORD'), 'ray' in sys.modules)"


def begun(
    folder: Path, context: dict[str, object], *arguments: str, by: str | Path = sys.executable
) -> str:
    """What a worker that prints its arguments and a variable prints, or Ray's own file instead."""
    worker, own = folder / "default_worker.py", folder / "setup_worker.py"
    worker.write_text(WORKER, encoding="utf-8")
    own.write_text("import sys; print('Ray begins', *sys.argv[1:])", encoding="utf-8")
    environment = f"--serialized-runtime-env-context={json.dumps(context)}"
    ended = subprocess.run(
        [by, lean_ray.BEGIN_WORKER, worker, "--port=1", *arguments, environment],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.strip()


def test_a_worker_has_its_variables_its_interpreter_and_its_own_arguments(tmp_path: Path) -> None:
    interpreter = tmp_path / "a python"
    interpreter.write_text(f'#!/bin/sh\necho by another\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o700)

    plain = begun(tmp_path, {"env_vars": {"WORD": "a b"}}, "--language=PYTHON")
    other = begun(tmp_path, {"py_executable": f"'{interpreter}'"}, "--language=PYTHON", "--x")

    assert plain == "['--port=1'] a b False"
    assert other == "by another\n['--port=1', '--x'] None False"


@pytest.mark.parametrize("named", [True, False])
def test_an_interpreter_of_rays_own_may_lie_below_a_folder_with_a_space(
    tmp_path: Path, named: bool
) -> None:
    python = tmp_path / "a folder" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    context: dict[str, object] = {"py_executable": str(python)} if named else {}

    assert begun(tmp_path, context, "--language=PYTHON", by=python) == "['--port=1'] None False"


@pytest.mark.parametrize(
    ("context", "language"),
    [
        ({"command_prefix": ["nice"]}, "PYTHON"),
        ({"java_jars": ["a.jar"]}, "PYTHON"),
        ({"env_vars": {"WORD": "${HOME}"}}, "PYTHON"),
        ({}, "JAVA"),
    ],
)
def test_a_worker_that_asks_for_more_is_begun_by_rays_own(
    tmp_path: Path, context: dict[str, object], language: str
) -> None:
    assert begun(tmp_path, context, f"--language={language}").startswith("Ray begins ")
