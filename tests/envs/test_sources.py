"""Where an environment's answers come from: its own source, or a worker that asks its class."""

import gc
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.inspected import InspectedEnvironment
from longhaul_envs.sources import environment_source
from other_processes import command_of


def spec(**options: object) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id="sources/Dice-v3", options=options, import_modules=("dice",)
    )


def broken(name: str) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id=f"broken/{name}-v0", import_modules=("broken_environments",)
    )


def test_an_environment_without_lists_gets_seeds() -> None:
    source = environment_source(spec())
    first = source.tasks(Split.TRAIN)[0]

    assert (first.environment, first.version) == ("sources/Dice-v3", "3")
    assert first.task_id == f"seed/{first.seed:05}"
    assert source.describe().version == "3"
    assert source.describe().summary.startswith("Shows a number")
    assert source.describe().prompt is None


def test_seeds_of_two_splits_never_show_the_same() -> None:
    """With 40 faces, seeds far apart show the same; position in a list would not do."""
    source = environment_source(spec(sides=40))
    environment = spec(sides=40).make()
    seen = {
        split: [environment.reset(seed=task.seed)[0] for task in source.tasks(split)]
        for split in Split
    }
    shown = [text for texts in seen.values() for text in texts]
    assert len(shown) == len(set(shown)) == 40
    assert all(seen.values())


def test_options_are_part_of_the_version() -> None:
    source = environment_source(spec(sides=40))

    assert source.tasks(Split.TRAIN)[0].version == '3+{"sides": 40}'
    assert source.describe().version == '3+{"sides": 40}'


def test_a_world_with_one_start_cannot_be_shared_out() -> None:
    source = environment_source(spec(sides=1))

    with pytest.raises(ConfigError, match="1 different first observations; give the environment"):
        for split in Split:
            source.tasks(split)


def test_lists_of_the_environment_itself_are_taken_as_they_are() -> None:
    source = environment_source(broken("Sound"))

    assert [task.task_id for task in source.tasks(Split.TRAIN)] == ["0", "1", "2", "3", "4"]
    assert source.describe().version == "1"


def test_asking_a_class_builds_it_once_and_not_in_the_process_that_asks(tmp_path: Path) -> None:
    constructions = tmp_path / "constructions"
    source = environment_source(spec(constructions=str(constructions)))

    assert not constructions.exists()
    source.describe()
    for split in Split:
        assert source.tasks(split)
    source.describe()

    built_in = constructions.read_text("utf-8").split()
    assert len(built_in) == 1
    assert built_in != [str(os.getpid())]


def test_a_constructor_that_ends_its_process_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match="'sources/Dice-v3' ended with exit code 7"):
        environment_source(spec(dies=True)).describe()


def test_options_that_a_class_refuses_and_spaces_without_text_are_told() -> None:
    with pytest.raises(ConfigError, match=r"making sources/Dice-v3 with .*corners.*TypeError"):
        environment_source(spec(corners=2)).describe()
    with pytest.raises(ConfigError, match=r"its actions are Discrete\(3\)"):
        environment_source(broken("Wordless")).describe()


def test_the_worker_ends_with_the_source_that_asked(tmp_path: Path) -> None:
    asked = InspectedEnvironment(
        GymEnvironmentSpec(
            environment_id="sources/Dice-v3",
            options={"constructions": str(tmp_path / "only this one")},
            import_modules=("dice",),
        )
    )
    asked.describe()
    (worker,) = [
        child for child in psutil.Process().children() if "only this one" in command_of(child)
    ]

    del asked
    gc.collect()

    assert not worker.is_running()


def test_the_worker_ends_with_an_answer_that_is_an_error() -> None:
    source = environment_source(spec(sides=1, constructions="/dev/null"))
    source.describe()
    assert children_with("/dev/null")
    with pytest.raises(ConfigError, match="1 different first observations"):
        for split in Split:
            source.tasks(split)

    assert children_with("/dev/null") == []


def test_the_worker_ends_when_everything_was_answered() -> None:
    """A run keeps its sources to its end, and may have a thousand of them."""
    source = environment_source(spec(sides=321))
    source.describe()
    for split in Split:
        assert children_with("321")
        source.tasks(split)

    assert children_with("321") == []
    assert source.describe().version == '3+{"sides": 321}'


def test_a_constructor_that_hangs_is_told_each_time_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longhaul_envs.inspected._DESCRIBE_SECONDS", 0.2)
    monkeypatch.setattr("longhaul_envs.inspected._END_SECONDS", 120)
    source = environment_source(spec(hangs=True))

    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(ConfigError, match=r"did not describe itself within 0\.2 s"):
            source.describe()
        assert time.monotonic() - began < 60  # it is not waited for either
        assert children_with("hangs") == []


def children_with(argument: str) -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if argument in command_of(child)]


def test_an_installed_environment_answers_without_an_instance_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an environment is built only to be played")

    monkeypatch.setattr(gymnasium.Env, "__init__", refuse, raising=False)
    monkeypatch.setattr("longhaul_envs.sokoban.environment.Sokoban.__init__", refuse)
    source = environment_source(
        GymEnvironmentSpec(environment_id="longhaul/Sokoban-v0", options={"size": 5})
    )

    assert source.describe().id == "longhaul/Sokoban-v0"
    assert all(source.tasks(split) for split in Split)


@pytest.mark.parametrize(
    ("environment_id", "options"),
    [
        ("longhaul/BabyAI-v0", {"actions": "primitive", "levels": "GoToObj"}),
        ("longhaul/Sokoban-v0", {"observation": "relative", "step_penalty": 0.1}),
        ("longhaul/TextCraft-v0", {"distractors": 3}),
    ],
)
def test_a_packaged_source_says_what_the_class_says(
    environment_id: str, options: dict[str, object]
) -> None:
    named = GymEnvironmentSpec(
        environment_id=environment_id, options=options, import_modules=("longhaul_envs.registry",)
    )
    description = environment_source(named).describe()
    made: Any = named.make().unwrapped

    assert description.prompt == made.prompt
    assert description.version == made.options.version
