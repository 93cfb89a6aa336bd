"""Which tests may be skipped where the whole suite runs, and what each lacks.

With `LONGHAUL_NO_SKIPS=1`, which `.ci/run` sets, any other skip is a failure.
"""

import os
from collections.abc import Mapping

import pytest

EXPECTED: Mapping[str, str] = {
    "LONGHAUL_TEST_DATA": "files that a user has to fetch, by their licence or their size",
    "longhaul/AgentGym-v0": "the address of a user's server",
    "longhaul/AppWorld-v0": "AppWorld's data, which its own program fetches",
    "longhaul/OpenEnv-v0": "the address of a user's server",
    "longhaul/ORS-v0": "the address of a user's server",
    "longhaul/WebArena-v0": "the sites that a user has to host",
    "`mount`": "the right to mount a disk, which a container may lack",
    "a disk cannot be mounted": "the right to mount a disk, which a container may lack",
    "float32 sums": "the machine on which the golden steps were recorded",
}
"""Words of a skip's reason to what is missing there."""


def is_expected(reason: str) -> bool:
    """Whether a test that was skipped for `reason` may be."""
    return any(words in reason for words in EXPECTED)


def refuse_unless_expected(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure, unless the list names what is missing."""
    if not os.environ.get("LONGHAUL_NO_SKIPS") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not is_expected(reason):
        report.outcome = "failed"
        report.longrepr = (
            f"{reason}\nNothing may be skipped here (LONGHAUL_NO_SKIPS) but what tests/skips.py "
            "lists: install what is missing, or name it there"
        )
