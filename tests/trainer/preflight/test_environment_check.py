"""Tests for `longhaul_trainer.preflight.environment_check`."""

import subprocess
import sys
from pathlib import Path

import pytest

from longhaul_core.discovery import installed_environments
from longhaul_core.errors import ConfigError
from longhaul_trainer.config import EnvironmentConfig, load_config
from longhaul_trainer.play.environments import task_stream
from longhaul_trainer.preflight.environment_check import require_known, require_playable
from machine import required

CONFIGS = Path(__file__).parents[3] / "configs"

MINE = """
import gymnasium
from gymnasium.spaces import Text

class Mine(gymnasium.Env):
    observation_space = action_space = Text(100)
    def __init__(self, doors=1):
        if doors < 1:
            raise RuntimeError(f"doors must be at least 1, got {doors}")

gymnasium.register("mine/Doors-v0", entry_point=Mine)
"""

CHECK = """
from longhaul_core.errors import ConfigError
from longhaul_trainer.config import EnvironmentConfig
from longhaul_trainer.preflight.environment_check import require_playable
mine = dict(id="mine/Doors-v0", import_modules=("doors_of_mine",))
require_playable(EnvironmentConfig(**mine))
require_playable(EnvironmentConfig(id="doors_of_mine:mine/Doors-v0"))
try:
    require_playable(EnvironmentConfig(**mine, options={"doors": 0}))
except ConfigError as error:
    print(error)
"""


OF_SERVERS = {
    "longhaul/AgentGym-v0": "option 'task'",
    "longhaul/ORS-v0": "option 'url'",
    "longhaul/OpenEnv-v0": "option 'url'",
    "longhaul/WebArena-v0": "`tasks_file` and `sites`",
}
"""What an environment needs to be told before it can be played."""


@pytest.mark.parametrize("environment_id", sorted(installed_environments().keys() - OF_SERVERS))
def test_every_packaged_environment_is_playable(environment_id: str) -> None:
    required(lambda: require_playable(EnvironmentConfig(id=environment_id)))


@pytest.mark.parametrize(("environment_id", "needed"), OF_SERVERS.items())
def test_one_that_plays_on_a_server_says_what_it_needs(environment_id: str, needed: str) -> None:
    with pytest.raises(ConfigError, match=f"needs .*{needed}"):
        require_playable(EnvironmentConfig(id=environment_id))


@pytest.mark.parametrize(
    "file",
    [CONFIGS / "smoke.toml", *sorted((CONFIGS / "recipes").glob("*.toml"))],
    ids=lambda file: file.stem,
)
def test_the_environment_of_every_recipe_is_playable_and_has_the_tasks_it_asks_for(
    file: Path,
) -> None:
    run = load_config(file)

    require_playable(run.environment)
    assert task_stream(run).next(run.tasks_per_training_step)


@pytest.mark.parametrize(
    ("environment_id", "message"),
    [
        ("longhaul/TextCroft-v0", "Did you mean: `TextCraft`"),
        ("Nothing-v0", "import_modules"),
        (
            "Nothing-v0",
            "installed are longhaul/ALFWorld-v0, longhaul/AgentGym-v0, longhaul/App",
        ),
    ],
)
def test_an_unknown_environment_is_told_by_name(environment_id: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        require_known(EnvironmentConfig(id=environment_id))

    assert repr(environment_id) in str(raised.value)


def test_a_module_that_cannot_be_imported_is_told_by_name() -> None:
    with pytest.raises(ConfigError, match="importing no_such_module: ModuleNotFoundError"):
        require_known(EnvironmentConfig(import_modules=("no_such_module",)))
    with pytest.raises(ConfigError, match="importing no_such_module: ModuleNotFoundError"):
        require_known(EnvironmentConfig(id="no_such_module:World-v0"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 99}, r"environment\.options: .*depth must be from 1 to 4, got 99"),
        ({"dept": 2}, r"environment\.options: .*no option 'dept'; there are depth, num_"),
    ],
)
def test_options_that_the_environment_refuses_are_told(
    options: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        require_playable(EnvironmentConfig(options=options))


def test_an_environment_that_does_not_speak_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"its observations are Box.*gymnasium\.spaces\.Text"):
        require_playable(EnvironmentConfig(id="CartPole-v1"))


def test_a_module_beside_the_run_registers_an_environment_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "doors_of_mine.py").write_text(MINE, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-P", "-c", CHECK],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "doors must be at least 1, got 0" in done.stdout
