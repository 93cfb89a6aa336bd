"""Every example runs from a clean process, as a reader would run it, and says what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "01_play_one_episode.py": ["Goal: craft", "task_solved", "return 1.0"],
    "02_write_an_environment.py": ["problems: none", "test: ['", "random: "],
}
"""Script to what its output must hold; a script that is missing here fails a test below."""


@pytest.mark.parametrize("script", SAYS)
def test_the_example_runs(script: str) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert [words for words in SAYS[script] if words not in finished.stdout] == []


def test_no_numbered_example_is_left_out() -> None:
    assert {path.name for path in EXAMPLES.glob("[0-9]*.py")} == set(SAYS)


def test_the_environment_of_the_example_is_written_in_30_lines() -> None:
    source = (EXAMPLES / "capitals.py").read_text("utf-8")
    lines = [line for line in source.splitlines()[1:] if line.strip()]
    assert len(lines) <= 30, f"{len(lines)} lines that are not blank"
