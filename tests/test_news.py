"""A suite that is ended has named what failed and what was running."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from news import News

ENDLESS = "from news import interrupt_after; import time; interrupt_after(0.01); time.sleep(600)"


class Written:
    """Stands in for pytest's reporter."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None: ...

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def report(nodeid: str, *, outcome: Literal["passed", "failed"]) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=("file.py", 1, "test"),
        keywords={},
        outcome=outcome,
        longrepr="a line\nfile.py:7: AssertionError\n" if outcome == "failed" else None,
        when="call",
    )


def test_what_failed_and_what_still_runs_is_named() -> None:
    reporter: Any = Written()
    news = News(reporter)
    for nodeid in ("file.py::good", "file.py::bad", "file.py::hanging"):
        news.pytest_runtest_logstart(nodeid)
    news.pytest_runtest_logreport(report("file.py::good", outcome="passed"))
    news.pytest_runtest_logfinish("file.py::good")
    news.pytest_runtest_logreport(report("file.py::bad", outcome="failed"))
    news.pytest_runtest_logfinish("file.py::bad")
    news.pytest_terminal_summary()

    failed, running = reporter.lines
    assert failed == "call failed: file.py::bad: file.py:7: AssertionError"
    assert running.startswith("still running, for ")
    assert running.endswith(": file.py::hanging")


def test_a_run_is_interrupted_as_by_ctrl_c() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDLESS],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")
