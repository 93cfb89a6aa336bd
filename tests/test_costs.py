"""The table of what the suite costs has every test once."""

from pathlib import Path

from costs import costs_table

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests">
<testsuite name="pytest" errors="0" failures="0" skipped="1" tests="5" time="90.0">
<testcase classname="tests.core.store.test_writer" name="test_a" time="2.5" />
<testcase classname="tests.core.store.deep.test_b.TestClass" name="test_b" time="1.0" />
<testcase classname="tests.core.test_health" name="test_c" time="0.25" />
<testcase classname="tests.training.test_kill" name="test_d" time="100.0" />
<testcase classname="tests.test_docs" name="test_e" time="1.0"><skipped message="no">no</skipped>
</testcase>
</testsuite></testsuites>
"""


def test_costs_are_added_up_by_folder_and_the_dearest_comes_first(tmp_path: Path) -> None:
    report = tmp_path / "suite.xml"
    report.write_text(REPORT, encoding="utf-8")

    assert costs_table(report) == (
        "5 tests took 2 min in two processes.\n"
        "\n"
        "| tests of | tests | skipped | seconds |\n"
        "|---|---|---|---|\n"
        "| training | 1 | 0 | 100 |\n"
        "| core/store | 2 | 0 | 4 |\n"
        "| the repository itself | 1 | 1 | 1 |\n"
        "| core | 1 | 0 | 0 |\n"
        "| all | 5 | 1 | 105 |"
    )
