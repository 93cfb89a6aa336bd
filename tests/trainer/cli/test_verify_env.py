"""`trainer verify-env` holds an environment to the contract, or to its authors' code."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.main import app


def test_it_prints_the_table_and_says_by_its_code_that_something_differs(tmp_path: Path) -> None:
    engine = tmp_path / "web_agent_site" / "engine"
    engine.mkdir(parents=True)
    reward = "nlp = lambda text: []\ndef get_reward(product, goal, price, options): return -1.0\n"
    (engine / "goal.py").write_text(reward, "utf-8")
    asked = ["verify-env", "longhaul/WebShop-v0", "--against", str(tmp_path), "--values", "7"]
    result = CliRunner().invoke(app, asked)

    assert result.exit_code == 1
    assert "reward" in result.output
    assert "7" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", ".", "--option", "size=5"], "leave out --option"),
        (["--values", "7"], "--values is of --against"),
    ],
)
def test_options_that_would_mean_nothing_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["verify-env", "longhaul/WebShop-v0", *options])

    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


@pytest.mark.slow
def test_it_prints_which_parts_of_the_goal_it_mistook() -> None:
    result = CliRunner().invoke(app, ["verify-env", "longhaul/NumberLine-v0"])

    assert result.exit_code == 0, result.output
    assert "reward audit: 'target' was mistaken in" in result.output
    assert "longhaul/NumberLine-v0 keeps the contract" in result.output
