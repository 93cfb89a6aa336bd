"""What the suite costs, folder by folder, as a table in a page.

`uv run pytest --all --junitxml=suite.xml`, then `python tests/costs.py suite.xml docs/tests.md`.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from longhaul_core.page_part import PagePart

PART = PagePart("costs")


def folder_of(classname: str) -> str:
    """The folder below `tests/`, two levels of it at most, that a test of this class is in.

    Args:
        classname: As JUnit's report has it, e.g. `tests.core.store.test_writer.TestClass`.
    """
    parts = classname.split(".")[1:]
    module = next(n for n, part in enumerate(parts) if part.startswith("test_"))
    return "/".join(parts[: min(module, 2)]) or "the repository itself"


def costs_table(report: Path) -> str:
    """A table of folders, the dearest first: tests, skips, seconds of all tests added up.

    Args:
        report: JUnit's XML, as pytest writes it.
    """
    tests: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    suites = ElementTree.parse(report).getroot()
    for case in suites.iter("testcase"):
        folder = folder_of(case.attrib["classname"])
        tests[folder] += 1
        skips[folder] += case.find("skipped") is not None
        seconds[folder] += float(case.attrib["time"])
    wall = sum(float(suite.attrib["time"]) for suite in suites.iter("testsuite"))
    rows = [
        f"| {folder} | {tests[folder]:,} | {skips[folder]:,} | {spent:,.0f} |"
        for folder, spent in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    total = f"{sum(tests.values()):,} | {sum(skips.values()):,} | {sum(seconds.values()):,.0f}"
    return "\n".join(
        [
            f"{sum(tests.values()):,} tests took {wall / 60:.0f} min in two processes.",
            "",
            "| tests of | tests | skipped | seconds |",
            "|---|---|---|---|",
            *rows,
            f"| all | {total} |",
        ]
    )


if __name__ == "__main__":
    PART.write(Path(sys.argv[2]), costs_table(Path(sys.argv[1])))
