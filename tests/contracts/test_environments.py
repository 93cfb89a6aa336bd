"""What every installed environment must honour, asked by the function that authors call.

Environments are found as the trainer finds them, so that one in a distribution of its own is
held to the contract as soon as it is installed.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from longhaul_core.discovery import installed_environments
from longhaul_core.environment import (
    Environment,
    EnvironmentDescription,
    EnvironmentSource,
    StepResult,
)
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource, ProcessPool
from longhaul_core.tasks import Panel, refuse_shared_content
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.check import check_environment
from longhaul_envs.sources import environment_source

INSTALLED = list(installed_environments())
OTHER_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "longhaul/BabyAI-v0": {"levels": ["GoToLocalS5N2"]},  # the default room takes 20 s
}
SETTINGS: list[tuple[str, Mapping[str, object]]] = [
    *((environment_id, OTHER_DEFAULTS.get(environment_id, {})) for environment_id in INSTALLED),
    ("longhaul/Sokoban-v0", {"size": 7, "num_boxes": 2, "observation": "relative"}),
    ("longhaul/TextCraft-v0", {"depth": 3, "show_inventory": False}),
    ("longhaul/TextCraft-v0", {"depth": 4, "distractors": 10}),
]
SLOW_SETTINGS: list[tuple[str, Mapping[str, object]]] = [
    ("longhaul/BabyAI-v0", {}),
    ("longhaul/BabyAI-v0", {"actions": "primitive", "remember": False}),
    ("longhaul/BabyAI-v0", {"levels": ["PutNextLocal", "UnlockLocal"], "time_penalty": True}),
    ("longhaul/BabyAI-v0", {"levels": ["GoToSeqS5R2"]}),
    ("longhaul/Sokoban-v0", {"size": 10, "num_boxes": 2}),
    ("longhaul/TextCraft-v0", {"depth": 2, "distractors": 0}),
]


def source_of(environment_id: str, options: Mapping[str, object]) -> EnvironmentSource:
    return environment_source(GymEnvironmentSpec(environment_id=environment_id, options=options))


@pytest.mark.parametrize(("environment_id", "options"), SETTINGS)
def test_the_contract_holds(environment_id: str, options: Mapping[str, object]) -> None:
    assert check_environment(environment_id, options=options, num_tasks=3) == []


@pytest.mark.slow
@pytest.mark.parametrize(("environment_id", "options"), SLOW_SETTINGS)
def test_the_contract_holds_under_other_options(
    environment_id: str, options: Mapping[str, object]
) -> None:
    assert check_environment(environment_id, options=options, num_tasks=6) == []


def test_the_packaged_environments_are_among_those_that_are_found() -> None:
    assert {"longhaul/BabyAI-v0", "longhaul/Sokoban-v0", "longhaul/TextCraft-v0"} <= set(INSTALLED)


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_a_description_names_its_environment_and_survives_json(environment_id: str) -> None:
    description = source_of(environment_id, {}).describe()

    assert description.id == environment_id
    assert description.summary
    assert EnvironmentDescription.from_json(description.to_json()) == description


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_panels_of_its_tasks_share_nothing_with_training(environment_id: str) -> None:
    source = source_of(environment_id, {})
    panels = [
        Panel.spread(listed, split=split, num_tasks=min(64, len(listed)))
        for split in (Split.VALIDATION, Split.TEST)
        for listed in [source.tasks(split)]
    ]
    refuse_shared_content(source.tasks(Split.TRAIN), *panels)


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_an_option_that_does_not_exist_is_refused(environment_id: str) -> None:
    with pytest.raises(ConfigError, match="flavour"):
        source_of(environment_id, {"flavour": "salt"})


NUM_STEPS = 12


class PlayedEpisode:
    """An episode of random admissible actions, one call at a time, and all that it returned."""

    def __init__(self, environment: Environment, task: Task) -> None:
        self._environment = environment
        self._task = task
        self._random = random.Random(task.task_id)
        self.returned: list[Observation | StepResult] = []

    async def play_on(self) -> bool:
        """Make the next call; False if there is none."""
        if not self.returned:
            await self._environment.open()
            self.returned.append(await self._environment.reset(self._task))
            return True
        last = self.returned[-1]
        ended = isinstance(last, StepResult) and (last.terminated or last.truncated)
        if ended or len(self.returned) > NUM_STEPS:
            await self._environment.close()
            return False
        observation = last.observation if isinstance(last, StepResult) else last
        action = self._random.choice(observation.admissible_actions or ("",))
        self.returned.append(await self._environment.step(action))
        return True


async def played_apart(spec: GymEnvironmentSpec, task: Task) -> list[Observation | StepResult]:
    """The episode in a process that plays nothing else."""
    async with ProcessPool(spec, num_workers=1) as pool:
        episode = PlayedEpisode(pool(task), task)
        while await episode.play_on():
            pass
        return episode.returned


async def played_together(
    spec: GymEnvironmentSpec, tasks: Sequence[Task]
) -> list[list[Observation | StepResult]]:
    """The episodes in one process, their calls interleaved in a random order."""
    async with ProcessPool(spec, num_workers=len(tasks)) as pool:
        episodes = [PlayedEpisode(pool(task), task) for task in tasks]
        going, draw = list(episodes), random.Random(7)
        while going:
            episode = draw.choice(going)
            if not await episode.play_on():
                going.remove(episode)
        assert pool.num_processes == 1
        return [episode.returned for episode in episodes]


LONG_EPISODES = [
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocalS5N2"], "actions": "primitive"}),
    *SETTINGS[1:],
]


@pytest.mark.parametrize(("environment_id", "options"), LONG_EPISODES)
def test_episodes_that_share_a_process_are_those_of_processes_of_their_own(
    environment_id: str, options: Mapping[str, object]
) -> None:
    source = source_of(environment_id, options)
    assert isinstance(source, GymSource)
    spec, listed = source.spec, source.tasks(Split.VALIDATION)[:3]
    tasks = [*listed, listed[0]]  # a group plays one task several times

    together = asyncio.run(played_together(spec, tasks))

    assert together == [asyncio.run(played_apart(spec, task)) for task in tasks]
    assert sum(map(len, together)) > 5 * len(tasks)
