"""Which tests run by default, what runs again, and what a suite that is killed leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from janitor import marked
from other_processes import still_running

pytestmark = pytest.mark.slow  # each test starts pytest anew

TESTS = Path(__file__).parent
INI = """
[pytest]
testpaths = .
markers =
    slow: takes long
"""


def pytest_in(folder: Path, *arguments: str, **files: str) -> subprocess.Popen[str]:
    """Start pytest on these files as the project's own suite is started, and no test of it."""
    (folder / "suite").mkdir()
    for name, content in files.items():
        (folder / "suite" / f"{name}.py").write_text(content, encoding="utf-8")
    (folder / "suite" / "pytest.ini").write_text(INI, encoding="utf-8")
    variables = {k: v for k, v in os.environ.items() if k != "LONGHAUL_NO_SKIPS"}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-rA", *arguments],
        env=variables | {"PYTHONPATH": str(TESTS)},
        cwd=folder / "suite",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def printed_by(folder: Path, *arguments: str, **files: str) -> tuple[int, str]:
    """The exit code of that pytest, and what it prints."""
    process = pytest_in(folder, *arguments, **files)
    printed, _ = process.communicate(timeout=600)
    return process.returncode, printed


QUICK_AND_SLOW = """
import pytest

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass
"""
SLOW_FILE = (
    "import pytest\npytestmark = [pytest.mark.slow]\nimport test_quick\ndef test_all(): pass"
)


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [(["-n2"], 1), (["-n2", "--all"], 3), (["test_slow.py"], 1), (["-m", "slow"], 2)],
    ids=["default", "all", "path", "mark"],
)
def test_slow_tests_run_with_all_and_where_they_are_named(
    tmp_path: Path, arguments: list[str], passed: int
) -> None:
    code, printed = printed_by(tmp_path, *arguments, test_quick=QUICK_AND_SLOW, test_slow=SLOW_FILE)

    assert code == 0
    assert f" {passed} passed" in printed.splitlines()[-1]
    assert ("PASSED test_quick.py::test_slow" in printed) == ("slow" in arguments or passed == 3)


FAILS_ONCE = """
from pathlib import Path

def test_once():
    print("a word")
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first time"

def test_good(): pass
"""
FAILS = "def test_always(): assert False"


def test_a_test_that_fails_once_is_named_and_fails_no_suite(tmp_path: Path) -> None:
    code, printed = printed_by(tmp_path, "--all", "-n2", test_a=FAILS_ONCE)

    assert code == 0, printed
    (line,) = [line for line in printed.splitlines() if line.startswith("FLAKY")]
    assert line.startswith("FLAKY: test_a.py::test_once: both outputs are in ")
    outputs = Path(line.rpartition(" ")[2])
    assert "the first time" in (outputs / "first.txt").read_text(encoding="utf-8")
    assert "a word" in (outputs / "first.txt").read_text(encoding="utf-8")
    assert "1 passed" in (outputs / "second.txt").read_text(encoding="utf-8")
    assert "1 passed, 1 flaky in" in printed.splitlines()[-1]


def test_a_failure_that_repeats_fails_the_suite_beside_one_that_does_not(tmp_path: Path) -> None:
    code, printed = printed_by(tmp_path, "--all", "-n0", test_a=FAILS_ONCE, test_b=FAILS)

    assert code == 1
    assert "FLAKY: test_a.py::test_once" in printed
    assert "failed again: test_b.py::test_always" in printed
    assert "1 failed, 1 passed, 1 flaky in" in printed.splitlines()[-1]


def test_failures_in_many_files_are_not_run_again(tmp_path: Path) -> None:
    files = {f"test_{number}": FAILS_ONCE for number in range(4)}

    code, printed = printed_by(tmp_path, "--all", "-n0", **files)

    assert code == 1
    assert "none: tests of 4 files failed, more than 3" in printed
    assert "4 failed, 4 passed in" in printed.splitlines()[-1]


LEAVES_A_SERVER = """
import subprocess, tempfile, time

def test_a_server():
    folder = tempfile.mkdtemp()
    subprocess.Popen(["setsid", "sleep", "1000"], cwd=folder)
    print("started", folder, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize(("processes", "end"), [("-n0", signal.SIGTERM), ("-n2", signal.SIGKILL)])
def test_a_suite_that_is_killed_leaves_no_process_and_no_folder(
    tmp_path: Path, processes: str, end: signal.Signals
) -> None:
    suite = pytest_in(tmp_path, processes, "-s", test_a=LEAVES_A_SERVER)
    while (server := started_below(suite.pid)) is None:
        assert suite.poll() is None, "the suite ended before its test began"
    folder = Path(server.cwd())
    (mark,) = {server.environ()["LONGHAUL_SUITE"]}
    janitor = next(one for one in psutil.process_iter() if mark in command_line(one))

    suite.send_signal(end)
    suite.communicate(timeout=60)

    assert still_running([janitor]) == []
    assert still_running([server]) == []
    assert marked(mark) == []
    assert not folder.exists()
    assert not Path(mark).exists()


def started_below(pid: int) -> psutil.Process | None:
    """The test's server, once it runs; it has left the suite's process group."""
    below = psutil.Process(pid).children(recursive=True)
    return next((one for one in below if command_line(one)[:1] == ["sleep"]), None)


def command_line(process: psutil.Process) -> list[str]:
    """Its arguments; empty when it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
