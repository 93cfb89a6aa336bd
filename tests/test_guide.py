"""The guide to an environment of one's own, and the tour, are carried out as they stand."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guides import GUIDES, Guide
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.main import app


@pytest.mark.slow
def test_every_file_and_command_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    guide = Guide.read("your_own_environment.md")

    guide.carry_out(tmp_path, seconds=900)

    assert len(guide.commands) >= 9
    assert set(guide.files) == {"hot_and_cold.py", "run.toml", "remote.toml"}
    assert (tmp_path / "now.png").read_bytes().startswith(b"\x89PNG")


def test_every_stop_of_the_tour_finds_the_step_as_the_page_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tour = Guide.read("tour.md")
    monkeypatch.chdir(tmp_path)
    unpack, export, *stops = tour.commands
    subprocess.run(["bash", "-c", unpack.replace("python", sys.executable, 1)], check=True)
    monkeypatch.setenv(*export.removeprefix("export ").split("="))

    console_of.cache_clear()
    done = [CliRunner().invoke(app, shlex.split(stop)[1:]) for stop in stops]
    console_of.cache_clear()

    rest = "".join(each.stdout for each in done)
    assert [each.exit_code for each in done] == [0] * 10
    for line in tour.prints:
        assert line in rest, f"{line!r} is not printed, or not in its place: {rest}"
        rest = rest.partition(line)[2]
    assert len(tour.prints) > 15


def test_every_function_that_the_tour_names_is_in_the_file_that_it_links() -> None:
    page = (GUIDES / "tour.md").read_text("utf-8")
    named = re.findall(r"`([\w.]+)` in\s+\[`[\w/.]+`\]\(([\w/.]+)\)", page)

    assert len(named) >= 12
    assert [(name, file) for name, file in named if not defines(GUIDES / file, name)] == []


def defines(file: Path, name: str) -> bool:
    """Whether a module has the function or class of a name, such as `WindowMemory.compose`."""
    found: list[ast.AST] = [ast.parse(file.read_text("utf-8"))]
    for part in name.split("."):
        found = [
            each
            for parent in found
            for each in ast.iter_child_nodes(parent)
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name == part
        ]
    return bool(found)
