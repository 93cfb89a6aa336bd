"""Which tests `uv run pytest` runs: those that take seconds, and one real training run.

`--all` adds the rest. Tests that are named, by a path or by `-m`, run whatever they take.
"""

import re
from pathlib import Path

import pytest

WHOLE_FILE_IS_SLOW = re.compile(
    r"^pytestmark = \[?\s*(?:pytest\.mark\.slow|\*?IMPORTS_VERL)", re.MULTILINE
)
"""How a file says it in its source, which is read without importing it, and so without verl."""


def add_options(parser: pytest.Parser) -> None:
    """Let the command line have `--all` and `--at-most`."""
    parser.addoption(
        "--all", action="store_true", help="all tests, as continuous integration runs them"
    )
    parser.addoption(
        "--at-most", type=float, metavar="SECONDS", help="interrupt the run after this time"
    )


def leaves_out_slow_tests(config: pytest.Config) -> bool:
    """Whether this is the default, in which no path, no `-m` and no `--all` is given.

    The processes that share out the tests are given the same command line as this one.
    """
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return not (named or config.option.markexpr or config.option.all)


def is_slow_file(path: Path) -> bool:
    """Whether all tests of this file are marked as slow."""
    return bool(WHOLE_FILE_IS_SLOW.search(path.read_text(encoding="utf-8")))


def deselect_slow_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are marked as slow."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
