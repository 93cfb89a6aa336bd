"""Tests that failed are run once more, and those that pass then are named as flaky.

A test that met a busy machine fails no change in silence: the closing lines have it as FLAKY, with
the output of both runs. A failure that repeats fails the suite, and so do failures in more than
`MOST_FILES` files.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from janitor import TEMPORARY

MOST_FILES = 3
"""Files counted, not tests: a fixture that fails once takes all the tests of its file with it."""
LIMIT_SECONDS = 1200.0
"""Longest second run of the tests of one file."""


def run_failed_tests_again(session: pytest.Session, reporter: pytest.TerminalReporter) -> None:
    """Run what failed once more, alone, in a fresh process for each file.

    Tests that pass then count as `flaky` in the summary, no more as failed; where all pass, the
    suite does. Nothing is run again where a file could not be collected.
    """
    reports = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    failed: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
    for report in reports:
        if not isinstance(report, pytest.TestReport):
            return
        failed[report.nodeid.partition("::")[0]].append(report)
    reporter.section("second runs of what failed")
    if len(failed) > MOST_FILES:
        reporter.write_line(f"none: tests of {len(failed)} files failed, more than {MOST_FILES}")
        return
    outputs = Path(tempfile.mkdtemp(prefix="longhaul-flaky-", dir=os.environ[TEMPORARY]))
    for file, of_file in failed.items():
        folder = outputs / file.removesuffix(".py").replace("/", "-")
        if _pass_now(of_file, folder):
            for kind in ("failed", "error"):
                kept = [one for one in reporter.stats.pop(kind, ()) if one not in of_file]
                reporter.stats |= {kind: kept} if kept else {}
            reporter.stats.setdefault("flaky", []).extend(of_file)
        word = "FLAKY" if of_file[0] in reporter.stats.get("flaky", ()) else "failed again"
        for report in of_file:
            reporter.write_line(f"{word}: {report.nodeid}: both outputs are in {folder}")
    if not any(reporter.stats.get(kind) for kind in ("failed", "error")):
        session.exitstatus = pytest.ExitCode.OK


def _pass_now(reports: Sequence[pytest.TestReport], folder: Path) -> bool:
    """Whether the failed tests of one file pass now; `folder` has the output of both runs."""
    folder.mkdir()
    tests = sorted({report.nodeid for report in reports})
    first = [
        part
        for report in reports
        for part in (
            f"{report.nodeid} ({report.when})",
            report.longreprtext,
            *(f"{title}\n{content}" for title, content in report.sections),
        )
    ]
    (folder / "first.txt").write_text("\n\n".join(first), encoding="utf-8")
    with (folder / "second.txt").open("w", encoding="utf-8") as second:
        command = [sys.executable, "-m", "pytest", "-n0", *tests]
        try:
            returncode = subprocess.run(
                command, stdout=second, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return False
    return returncode == pytest.ExitCode.OK
