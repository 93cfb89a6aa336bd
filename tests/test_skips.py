"""Where nothing may be skipped, a skip fails; what was not run is printed with its reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MODULE = """
import pytest

def test_named():
    pytest.skip("set LONGHAUL_TEST_DATA to run it")

def test_unnamed():
    pytest.skip("no idea")

@pytest.mark.parametrize("number", [1, 2])
def test_environment(number, record_property):
    if number == 1:
        record_property("environment that was run", "mine/One-v0")
    else:
        record_property("environment that was not run", ("mine/Two-v0", "no licence"))
        pytest.skip("longhaul/AppWorld-v0 lacks its data")
"""
FILE_SKIP = "import pytest\npytest.skip('no compiler', allow_module_level=True)\n"


def run_pytest(folder: Path, **variables: str) -> str:
    (folder / "test_skipping.py").write_text(MODULE, encoding="utf-8")
    (folder / "test_skipped_file.py").write_text(FILE_SKIP, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "LONGHAUL_NO_SKIPS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-q", "-rA", folder],
        env=environment | variables | {"PYTHONPATH": str(TESTS)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    ).stdout


def test_a_skip_that_no_list_names_fails_where_nothing_may_be_skipped(tmp_path: Path) -> None:
    printed = run_pytest(
        tmp_path, LONGHAUL_NO_SKIPS="1", PYTEST_ADDOPTS="-n0 --continue-on-collection-errors"
    )

    assert "FAILED test_skipping.py::test_unnamed" in printed
    assert "ERROR test_skipped_file.py" in printed
    assert "no idea\nNothing may be skipped here (LONGHAUL_NO_SKIPS)" in printed
    assert "1 failed, 1 passed, 2 skipped, 1 error" in printed


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_the_environments_are_counted_and_those_not_run_named(
    tmp_path: Path, processes: str
) -> None:
    printed = run_pytest(tmp_path, PYTEST_ADDOPTS=processes)

    assert "not run: mine/Two-v0: no licence\nenvironments run 1 of 2 listed" in printed
    assert "failed" not in printed
