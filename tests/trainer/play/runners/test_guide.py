"""What `docs/guides/runners.md` shows is what the program takes."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from longhaul_trainer.cli.main import app
from longhaul_trainer.config import RunConfig

GUIDE = Path(__file__).parents[4].joinpath("docs/guides/runners.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def commands() -> list[list[str]]:
    """Every command line of a runner: of a shell, and of the job."""
    lines = "".join(blocks("console")).replace("\\\n", " ").splitlines()
    shown = [
        shlex.split(line[line.index("trainer runner") :])
        for line in lines
        if "trainer runner " in line
    ]
    (job,) = map(yaml.safe_load, blocks("yaml"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return [*shown, container["command"]]


def test_there_are_three() -> None:
    assert len(commands()) == 3


@pytest.mark.parametrize("words", commands(), ids=lambda words: str(len(words)))
def test_a_command_line_of_the_guide_is_understood(words: list[str]) -> None:
    runner: Any = get_command(app)
    name, *arguments = words[1:]

    made = runner.commands[name].make_context(name, arguments)

    assert words[0] == "trainer"
    assert made.params["command"] == ["python", "my_agent.py"]
    assert made.params["concurrency"] == 16


def test_the_run_of_the_guide_is_one() -> None:
    (described,) = map(tomllib.loads, blocks("toml"))

    run = RunConfig.model_validate(
        {"num_training_steps": 1, "tasks_per_training_step": 1, **described}
    )

    assert (run.agent.kind, run.agent.host, run.agent.port) == ("remote", "0.0.0.0", 8400)
