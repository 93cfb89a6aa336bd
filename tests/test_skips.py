"""Where nothing may be skipped, a skip fails; what was not run is printed with its reason."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_envs.browser.chromium import chromium_executable
from machine import REMEDIES, required

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
LACKING = """
import pytest

@pytest.mark.usefixtures("installed_java")
@pytest.mark.parametrize("number", [1, 2])
def test_of_java(number): pass

def test_of_a_browser(installed_chromium): pass

def test_of_an_environment():
    pytest.skip("mine/Web-v0 is not run: no Chromium found: none is on the path")
"""


def run_pytest(folder: Path, **variables: str) -> str:
    """What it prints in a folder of skipping tests, where no program is on the path."""
    (folder / "test_skipping.py").write_text(MODULE, encoding="utf-8")
    (folder / "test_skipped_file.py").write_text(FILE_SKIP, encoding="utf-8")
    (folder / "mine").mkdir()
    (folder / "mine/test_lacking.py").write_text(LACKING, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    unset = {"LONGHAUL_NO_SKIPS", "LONGHAUL_CHROMIUM", "JAVA_HOME"}
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-q", "-rA", folder],
        env=environment | variables | {"PYTHONPATH": str(TESTS), "PATH": str(folder)},
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
    assert "FAILED mine/test_lacking.py::test_of_an_environment" in printed
    assert "ERROR mine/test_lacking.py::test_of_a_browser" in printed
    assert "2 failed, 1 passed, 2 skipped, 4 errors" in printed


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_the_environments_are_counted_and_what_was_not_run_is_named(
    tmp_path: Path, processes: str
) -> None:
    printed = run_pytest(tmp_path, PYTEST_ADDOPTS=processes)

    assert "not run: mine/Two-v0: no licence\nenvironments run 1 of 2 selected" in printed
    assert "failed" not in printed
    last = printed.splitlines()[-4:]
    assert last[0].strip("= ") == "to skip less"
    assert last[1:3] == [
        "sudo apt-get install chromium: for 2 of mine",
        "sudo apt-get install default-jre-headless: for 2 of mine",
    ]
    assert last[3].startswith("1 passed, 8 skipped")


def test_a_program_that_is_named_and_is_not_there_is_no_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGHAUL_CHROMIUM", "/no/chromium")

    with pytest.raises(ConfigError, match="no program to run at '/no/chromium'"):
        required(chromium_executable)


@pytest.mark.parametrize("file", ["README.md", ".ci/run"])
def test_what_a_newcomer_and_continuous_integration_install_ends_every_such_skip(file: str) -> None:
    told = (TESTS.parent / file).read_text(encoding="utf-8")
    packages = re.findall("apt-get install ([a-z-]+)", "; ".join(REMEDIES.values()))

    assert {package for package in packages if package not in told} == set()
    assert "--group textgames" in told
