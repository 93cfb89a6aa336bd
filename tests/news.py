"""What a suite says before its end: each failure at once, and at an interrupt what was running.

A suite that somebody ends, because it takes too long, has thus named what failed and what hung.
"""

import os
import signal
import threading
import time

import pytest


def interrupt_after(seconds: float) -> None:
    """Interrupt this process as Ctrl-C does, should it still run then."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


class News:
    """Hooks of the process that prints; reports of tests elsewhere arrive here too."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._running: dict[str, float] = {}
        """When each test that has not ended began, in seconds of `time.monotonic`."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note a test that begins."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget a test that has ended."""
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test whose setup, call or teardown failed."""
        if report.failed:
            last_line = report.longreprtext.rstrip().rpartition("\n")[2]
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{report.when} failed: {report.nodeid}: {last_line}")

    def pytest_terminal_summary(self) -> None:
        """Name the tests that an interrupt has ended."""
        for nodeid, begun in self._running.items():
            seconds = time.monotonic() - begun
            self._reporter.write_line(f"still running, for {seconds:.0f} s: {nodeid}")
