"""What every packaged environment must honour, asked by the function that authors call."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from longhaul_core.environment import Environment, StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, ProcessPool
from longhaul_core.tasks import Panel, refuse_shared_content
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.capabilities import HasExpert, HasPrompt, ListsTasks, SharesProcess
from longhaul_envs.check import check_environment
from longhaul_envs.registry import ENVIRONMENTS
from longhaul_envs.sources import task_source_for

SETTINGS: list[tuple[str, Mapping[str, object]]] = [
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocalS5N2"]}),
    ("longhaul/Sokoban-v0", {}),
    ("longhaul/Sokoban-v0", {"size": 7, "num_boxes": 2, "observation": "relative"}),
    ("longhaul/TextCraft-v0", {}),
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
GAMES = ("longhaul/BabyAI-v0", "longhaul/Sokoban-v0", "longhaul/TextCraft-v0")
"""What small models learn on: short texts that name the goal, and a solution for each task."""


def spec_of(environment_id: str, options: Mapping[str, object]) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(
        environment_id=environment_id,
        options=options,
        import_modules=("longhaul_envs.registry",),
    )


@pytest.mark.parametrize(("environment_id", "options"), SETTINGS)
def test_the_contract_holds(environment_id: str, options: Mapping[str, object]) -> None:
    assert check_environment(environment_id, options=options, num_tasks=3) == []


@pytest.mark.slow
@pytest.mark.parametrize(("environment_id", "options"), SLOW_SETTINGS)
def test_the_contract_holds_under_other_options(
    environment_id: str, options: Mapping[str, object]
) -> None:
    assert check_environment(environment_id, options=options, num_tasks=6) == []


def test_the_contract_is_asked_of_every_packaged_environment() -> None:
    assert {environment_id for environment_id, _ in SETTINGS} == set(ENVIRONMENTS)


@pytest.mark.parametrize("environment_id", ENVIRONMENTS)
def test_a_packaged_environment_has_tasks_and_a_prompt(environment_id: str) -> None:
    environment = spec_of(environment_id, {}).make().unwrapped
    assert isinstance(environment, ListsTasks)
    assert isinstance(environment, HasPrompt)
    assert isinstance(environment, SharesProcess)
    assert environment.prompt.system
    assert environment.prompt.instruction


@pytest.mark.parametrize("environment_id", GAMES)
def test_a_game_has_an_expert(environment_id: str) -> None:
    assert isinstance(spec_of(environment_id, {}).make().unwrapped, HasExpert)


@pytest.mark.parametrize("environment_id", ENVIRONMENTS)
def test_panels_of_its_tasks_share_nothing_with_training(environment_id: str) -> None:
    source = task_source_for(spec_of(environment_id, {}))
    panels = [
        Panel.spread(source.tasks(split), split=split, num_tasks=64)
        for split in (Split.VALIDATION, Split.TEST)
    ]
    refuse_shared_content(source.tasks(Split.TRAIN), *panels)


@pytest.mark.parametrize("environment_id", GAMES)
def test_a_first_observation_of_a_game_names_its_goal_and_fits_a_small_model(
    environment_id: str,
) -> None:
    """About four characters a token: 600 of them leave room in a prompt of 256 tokens."""
    source, environment = (
        task_source_for(spec_of(environment_id, {})),
        spec_of(environment_id, {}).make(),
    )
    for task in source.tasks(Split.VALIDATION)[:32]:
        text, info = environment.reset(seed=task.seed, options={"task_id": task.task_id})
        assert len(text) + len(" | ".join(info["admissible_actions"])) < 1000
        assert "Goal: " in text


@pytest.mark.parametrize("environment_id", ENVIRONMENTS)
def test_an_option_that_does_not_exist_is_refused(environment_id: str) -> None:
    with pytest.raises((TypeError, ConfigError), match="flavour"):
        spec_of(environment_id, {"flavour": "salt"}).make()


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
    spec = spec_of(environment_id, options)
    listed = task_source_for(spec).tasks(Split.VALIDATION)[:3]
    tasks = [*listed, listed[0]]  # a group plays one task several times

    together = asyncio.run(played_together(spec, tasks))

    assert together == [asyncio.run(played_apart(spec, task)) for task in tasks]
    assert sum(map(len, together)) > 5 * len(tasks)
