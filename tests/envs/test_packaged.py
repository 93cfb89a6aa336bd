"""What the three packaged games promise beyond the contract, for the small models they train."""

import re
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import pytest

import longhaul_envs
from longhaul_core.discovery import installed_environments
from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Split, Task
from longhaul_envs.capabilities import HasExpert, HasPrompt, ListsTasks
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.registry import register_all
from longhaul_envs.sources import environment_source

PACKAGED = ["longhaul/BabyAI-v0", "longhaul/Sokoban-v0", "longhaul/TextCraft-v0"]


def source_of(environment_id: str) -> GymSource:
    source = environment_source(GymEnvironmentSpec(environment_id=environment_id))
    assert isinstance(source, GymSource)
    return source


@pytest.mark.parametrize("environment_id", PACKAGED)
def test_a_class_has_tasks_a_prompt_and_an_expert(environment_id: str) -> None:
    environment = source_of(environment_id).spec.make().unwrapped

    assert isinstance(environment, ListsTasks)
    assert isinstance(environment, HasExpert)
    assert isinstance(environment, HasPrompt)
    assert environment.prompt.system
    assert environment.prompt.instruction


@pytest.mark.parametrize("environment_id", PACKAGED)
def test_a_first_observation_fits_a_small_model(environment_id: str) -> None:
    """About four characters a token: 600 of them leave room in a prompt of 256 tokens."""
    source = source_of(environment_id)
    environment = source.spec.make()
    for task in source.tasks(Split.VALIDATION)[:32]:
        text, info = environment.reset(seed=task.seed, options={"task_id": task.task_id})
        assert len(text) + len(" | ".join(info["admissible_actions"])) < 1000
        assert "Goal: " in text


def test_each_folder_of_the_package_is_an_environment_with_an_entry_point() -> None:
    (root,) = map(Path, longhaul_envs.__path__)
    folders = {path.parent.name for path in root.glob("*/environment.py")}
    folders -= {"remote"}  # any environment, on a server
    sources = {
        f"longhaul_envs.{path.parent.name}.{path.stem}:source"
        for path in root.glob("*/*.py")
        if re.search(r"^(source = |def source\()", path.read_text("utf-8"), re.MULTILINE)
    }

    assert len(sources) >= len(PACKAGED)
    assert folders <= {source.split(".")[1] for source in sources}
    assert sources <= set(installed_environments().values())


@pytest.mark.parametrize("environment_id", PACKAGED)
def test_a_class_is_made_under_the_options_of_its_source_and_no_others(environment_id: str) -> None:
    with pytest.raises(ConfigError, match="has no option 'flavour'"):
        gymnasium.make(environment_id, flavour="salt")


def test_gymnasium_makes_each_of_them_once_the_registry_is_imported() -> None:
    register_all()

    for environment_id in PACKAGED:
        gymnasium.make(environment_id).close()


def test_a_source_of_a_module_in_no_package_is_registered_by_that_module() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(PackagedOptions):
        environment_id = "mine/Rooms-v0"

    def tasks(split: Split, options: Options, limit: int | None = None) -> tuple[Task, ...]:
        return (options.task("1", split, goal=""),)[:limit]

    tasks.__module__ = "rooms_of_mine"
    source = PackagedSource(
        Options,
        tasks,
        lambda options: EnvironmentDescription(id=options.environment_id, version="1"),
    )

    assert source({}).spec.import_modules == ("rooms_of_mine",)
