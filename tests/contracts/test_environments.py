"""What every installed environment must honour, asked by the function that authors call.

Environments are found as the trainer finds them, so that one in a distribution of its own is
held to the contract as soon as it is installed.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import cast

import pytest

from listed_environments import (
    FASTER,
    GOLDEN,
    INSTALLED,
    WRITE_ANEW,
    Options,
    skip_if_missing,
    source_of,
    task_list_hashes,
    why_missing,
)
from longhaul_core.environment import (
    Environment,
    EnvironmentDescription,
    StepResult,
)
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec, GymSource, ProcessPool
from longhaul_core.tasks import Panel, refuse_shared_content
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.capabilities import Draws
from longhaul_envs.check import check_environment
from longhaul_envs.pictures import has_pictures

RUN, NOT_RUN = "environment that was run", "environment that was not run"  # tests/conftest.py

NUM_STARTS, FEW_STARTS = 100, 5
"""Tasks of each split whose starts are compared, for environments that `ALL_STARTS` lacks; few for
those of `SLOW_STARTS` and for options that the environment's own tests know."""
ALL_STARTS = {"longhaul/BabyAI-v0", "longhaul/Sokoban-v0", "longhaul/TextCraft-v0"}
SLOW_STARTS = {
    "longhaul/ALFWorld-v0",
    "longhaul/MiniWoB-v0",
    "longhaul/ScienceWorld-v0",
    "longhaul/TextWorld-v0",
}
"""Where a browser, a virtual machine or a game is started: one task of each split is played."""
OTHER_SETTINGS: list[tuple[str, Options]] = [
    ("longhaul/WebShop-v0", {"search_proposals": 4, "observation": "sep", "show_attributes": True}),
    ("longhaul/Sokoban-v0", {"size": 7, "num_boxes": 2, "observation": "relative"}),
    (
        "longhaul/TextCraft-v0",
        {"depth": 4, "distractors": 10, "show_inventory": False, "subgoal_reward": 0.25},
    ),
]
SLOW_SETTINGS: list[tuple[str, Options]] = [
    ("longhaul/BabyAI-v0", {"actions": "primitive", "remember": False}),
    ("longhaul/BabyAI-v0", {"form": "agentgym", "levels": ["ActionObjDoor"]}),
    (
        "longhaul/BabyAI-v0",
        {"levels": ["PutNextLocal", "UnlockLocal", "GoToSeqS5R2"], "time_penalty": True},
    ),
    ("longhaul/Blackjack-v0", {"observation": "image"}),
    ("longhaul/Maze-v0", {"observation": "walls", "reward": "standard_reward"}),
    ("longhaul/NumberLine-v0", {"observation": "image", "max_position": 20}),
    ("longhaul/Points24-v0", {"observation": "image", "face_cards_as_ten": False}),
    ("longhaul/SQL-v0", {"num_databases": 2, "form": "single", "schema": "hidden"}),
    ("longhaul/Sokoban-v0", {"size": 7, "observation": "image"}),
]

NOT_MISTAKEN = {
    "longhaul/Blackjack-v0": "its goal has no parts, and chance decides",
    "longhaul/MiniWoB-v0": "a page's own script decides",
    "longhaul/TextWorld-v0": "its expert is the game's own plan, which leads to one goal",
}
"""Environments of ours whose experts take no part of a goal for another, and why."""


def problems_of(environment_id: str, options: Options, *, thorough: bool = True) -> list[str]:
    """Problems that a check of some tasks finds, or of few where those take long."""
    if environment_id in SLOW_STARTS:
        thorough = False
    num_starts = NUM_STARTS if thorough else FEW_STARTS
    return check_environment(
        environment_id,
        options=options,
        num_tasks=3 if thorough else 1,
        num_starts=None if thorough and environment_id in ALL_STARTS else num_starts,
    )


@pytest.mark.parametrize(
    "environment_id",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW_STARTS else ())
        for name in INSTALLED
    ],
)
def test_the_contract_holds(
    environment_id: str, record_property: Callable[[str, object], None]
) -> None:
    if reason := why_missing(environment_id):
        record_property(NOT_RUN, (environment_id, reason))
        skip_if_missing(environment_id)
    record_property(RUN, environment_id)

    assert problems_of(environment_id, FASTER.get(environment_id, {})) == []


@pytest.mark.parametrize(("environment_id", "options"), OTHER_SETTINGS)
def test_the_contract_holds_under_other_options(environment_id: str, options: Options) -> None:
    assert problems_of(environment_id, options) == []


@pytest.mark.slow
@pytest.mark.parametrize(("environment_id", "options"), SLOW_SETTINGS)
def test_the_contract_holds_under_slow_options(environment_id: str, options: Options) -> None:
    assert problems_of(environment_id, options, thorough=False) == []


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_the_tasks_are_those_that_they_were(environment_id: str) -> None:
    """Scores of two releases are compared task by task: a change of the lists must be meant."""
    skip_if_missing(environment_id)
    golden = json.loads(GOLDEN.read_text("utf-8"))

    assert environment_id in golden, f"record its tasks: {WRITE_ANEW}"
    assert golden[environment_id] == task_list_hashes(environment_id), (
        f"raise the version of its rules, or its data hash, if this is meant; then {WRITE_ANEW}"
    )


def test_no_golden_list_is_left_of_an_environment_that_is_gone() -> None:
    assert json.loads(GOLDEN.read_text("utf-8")).keys() <= set(INSTALLED)


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_an_environment_of_ours_draws_its_state(environment_id: str) -> None:
    skip_if_missing(environment_id)
    source = source_of(environment_id)
    if not isinstance(source, GymSource):
        assert source.describe().summary, "a client of other systems draws nothing"
        return
    with closing(source.spec.make()) as environment:
        bare = cast("object", environment.unwrapped)
        assert isinstance(bare, Draws)
        assert bare.render_mode == "rgb_array"
        shown = has_pictures(environment.observation_space)
        assert source.describe().shows_pictures == shown


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_an_environment_of_ours_with_an_expert_has_its_reward_audited(environment_id: str) -> None:
    skip_if_missing(environment_id)
    source = source_of(environment_id)
    if not isinstance(source, GymSource):
        return
    made = source.spec.load()
    if hasattr(made, "expert_action"):
        assert hasattr(made, "goal_parts") == (environment_id not in NOT_MISTAKEN)


def test_the_packaged_environments_are_among_those_that_are_found() -> None:
    assert {"longhaul/BabyAI-v0", "longhaul/Sokoban-v0", "longhaul/TextCraft-v0"} <= set(INSTALLED)


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_a_description_names_its_environment_and_survives_json(environment_id: str) -> None:
    skip_if_missing(environment_id)
    description = source_of(environment_id).describe()

    assert description.id == environment_id
    assert description.summary
    assert EnvironmentDescription.from_json(description.to_json()) == description


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_panels_of_its_tasks_share_nothing_with_training(environment_id: str) -> None:
    skip_if_missing(environment_id)
    source = source_of(environment_id)
    panels = [
        Panel.spread(listed, split=split, num_tasks=min(64, len(listed)))
        for split in (Split.VALIDATION, Split.TEST)
        for listed in [source.tasks(split)]
    ]
    refuse_shared_content(source.tasks(Split.TRAIN), *panels)


@pytest.mark.parametrize("environment_id", INSTALLED)
def test_an_option_that_does_not_exist_is_refused(environment_id: str) -> None:
    with pytest.raises(ConfigError):
        source_of(environment_id, {"flavour": "salt"}).describe()


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


async def played_apart(
    spec: GymEnvironmentSpec, tasks: Sequence[Task]
) -> list[list[Observation | StepResult]]:
    """The episodes one after the other, each in a process that plays nothing else."""
    async with ProcessPool(spec, num_workers=len(tasks), most_in_one=1) as pool:
        episodes = [PlayedEpisode(pool(task), task) for task in tasks]
        for episode in episodes:
            await episode.play_on()
        assert pool.num_processes == len(tasks)
        for episode in episodes:
            while await episode.play_on():
                pass
        return [episode.returned for episode in episodes]


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


LONG_EPISODES: list[tuple[str, Options]] = [
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocalS5N2"], "actions": "primitive"}),
    *OTHER_SETTINGS,
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

    apart = asyncio.run(played_apart(spec, listed))
    assert together == [*apart, apart[0]]
    assert sum(map(len, together)) > 5 * len(tasks)
