"""What some tests need of the machine, found as the product finds it; without it they are skipped.

A plugin of pytest. The last lines of its report say what to install for which tests.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

from longhaul_core.errors import ConfigError, MachineError

Found = TypeVar("Found")

REMEDIES: Mapping[str, str] = {
    "no Chromium found": "sudo apt-get install chromium",
    "no `java`": "sudo apt-get install default-jre-headless",
    "no `node`": "sudo apt-get install nodejs",
    "Debian's package wordnet-base": "sudo apt-get install wordnet-base",
    "longhaul-envs[alfworld]": "sudo apt-get install build-essential; uv sync --group textgames",
    "longhaul-envs[textworld]": "sudo apt-get install build-essential; uv sync --group textgames",
}
"""Words of a skip's reason to the commands after which its test is run."""


@pytest.fixture(scope="session")
def installed_chromium() -> str:
    """The path of the browser."""
    # Imported here: tests of the core alone run where no environment is installed.
    from longhaul_envs.browser.chromium import chromium_executable

    return required(chromium_executable)


@pytest.fixture(scope="session")
def installed_java() -> str:
    """The path of `java`."""
    from longhaul_envs.scienceworld.java import java_program

    return required(java_program)


@pytest.fixture(scope="session")
def installed_node() -> str:
    """The path of `node`, which only tests need: unit tests of the viewer's scripts."""

    def node_program() -> str:
        found = shutil.which("node")
        if found is None:
            raise MachineError("no `node` is on the path")
        return found

    return required(node_program)


@pytest.fixture(scope="session")
def installed_wordnet() -> Path:
    """The folder of WordNet's database."""
    from longhaul_envs.search.tasks import SearchOptions
    from longhaul_envs.search.wordnet import data_key

    folder = Path(SearchOptions().wordnet)
    required(lambda: data_key(folder))
    return folder


@pytest.fixture(scope="session")
def installed_alfworld() -> None:
    """Its planner is built with it."""
    from longhaul_envs.extras import required as required_extra

    required(lambda: required_extra("alfworld", "alfworld"))
    required(lambda: required_extra("fast_downward", "alfworld"))


@pytest.fixture(scope="session")
def installed_textworld() -> None:
    """Its games' compiler comes with it."""
    from longhaul_envs.extras import required as required_extra

    required(lambda: required_extra("textworld", "textworld"))


def required(find: Callable[[], Found]) -> Found:
    """What the product's `find` finds; a skip by its sentence if it lacks what can be installed.

    Raises:
        ConfigError, MachineError: Something else is wrong, such as a variable that names nothing.
    """
    try:
        return find()
    except (ConfigError, MachineError) as error:
        if not remedies(str(error)):
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print what to install, below all other summaries."""
    yield
    lines = what_to_install(terminalreporter.stats.get("skipped", ()))
    if lines:
        terminalreporter.section("to skip less")
        for line in lines:
            terminalreporter.write_line(line)


def what_to_install(
    skipped: Iterable[pytest.TestReport | pytest.CollectReport],
) -> list[str]:
    """A line for each of the commands that end some of these skips: how many, and where."""
    folders: dict[str, Counter[str]] = {}
    for report in skipped:
        folder = str(PurePosixPath(report.nodeid.partition("::")[0]).parent)
        for remedy in remedies(str(report.longrepr)):
            folders.setdefault(remedy, Counter())[folder] += 1
    return [
        f"{remedy}: for "
        + ", ".join(f"{number} of {folder}" for folder, number in sorted(counts.items()))
        for remedy, counts in sorted(folders.items())
    ]


def remedies(reason: str) -> set[str]:
    """The commands that end a skip for this reason; none if it is for want of something else."""
    return {remedy for words, remedy in REMEDIES.items() if words in reason}
