"""Task lists of environments that have none: seeds, shared out by what they show first."""

from typing import Any

import gymnasium
import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.sources import ListedTasks, SeedTasks, task_source_for
from longhaul_envs.text import text_space


class Dice(gymnasium.Env[str, str]):
    """Shows a number of 1 to `sides`, drawn by the seed."""

    def __init__(self, *, sides: int = 10_000) -> None:
        self.observation_space = self.action_space = text_space()
        self.sides = sides

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"a {1 + self.np_random.integers(self.sides)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 1.0, True, False, {}


gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
    "sources/Dice-v3",
    entry_point=Dice,  # pyright: ignore[reportArgumentType]  (a class is a creator)
)


def spec(**options: object) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(environment_id="sources/Dice-v3", options=options)


def test_an_environment_without_lists_gets_seeds() -> None:
    source = task_source_for(spec())
    assert isinstance(source, SeedTasks)
    first = source.tasks(Split.TRAIN, 3)[0]
    assert (first.environment, first.version) == ("sources/Dice-v3", "3")


def test_seeds_of_two_splits_never_show_the_same() -> None:
    """With 40 faces, seeds far apart show the same; position in a list would not do."""
    source = SeedTasks(spec(sides=40))
    environment = spec(sides=40).make()
    seen = {
        split: [environment.reset(seed=task.seed)[0] for task in source.tasks(split)]
        for split in Split
    }
    shown = [text for texts in seen.values() for text in texts]
    assert len(shown) == len(set(shown)) == 40
    assert all(seen.values())


def test_options_are_part_of_the_version() -> None:
    assert SeedTasks(spec(sides=40)).tasks(Split.TRAIN, 1)[0].version == '3+{"sides": 40}'


def test_a_world_with_one_start_cannot_be_shared_out() -> None:
    with pytest.raises(ConfigError, match="1 different first observations; give the environment"):
        for split in Split:
            SeedTasks(spec(sides=1)).tasks(split)


def test_lists_of_the_environment_itself_are_taken_as_they_are() -> None:
    listed = GymEnvironmentSpec(
        environment_id="broken/Sound-v0", import_modules=("broken_environments",)
    )
    source = task_source_for(listed)
    assert isinstance(source, ListedTasks)
    assert [task.task_id for task in source.tasks(Split.TRAIN, 2)] == ["0", "1"]
    assert len(source.tasks(Split.TRAIN)) == 5
