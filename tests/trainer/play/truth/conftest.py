"""A store in which groups of a small KeyDoor were played, as a training would."""

import asyncio

import pytest
from rich.console import Console

from longhaul_core.rollout import EpisodeSpec, episode_seed
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.environments import descriptions_of, source_of
from longhaul_trainer.play.episode_run import EpisodeRun, Plan
from longhaul_trainer.play.players import ExpertPlayer
from longhaul_trainer.run.directory import RunDirectory

SMALL_KEY_DOOR = """
name = "small"
num_training_steps = 2
tasks_per_training_step = 3

[model]
path = "tiny"

[environment]
id = "longhaul/KeyDoor-v0"
options = { room_size = 3 }
isolation = "thread"

[rollout]
group_size = 3
horizon = 30
max_prompt_tokens = 600
max_reply_tokens = 8

[memory]
kind = "none"

[actions]
format = "plain"

[validation]
num_tasks = 8
test_num_tasks = 8
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Three groups of three episodes by an expert that acts by chance in half of its steps."""
    config = parse_config(SMALL_KEY_DOOR).with_absolute_paths(tmp_path_factory.mktemp("trained"))
    (entry,) = config.played_environments
    plan = Plan(
        kind="train",
        phase="train",
        specs=[
            EpisodeSpec(
                task=task,
                seed=episode_seed(0, training_step=0, group_index=group, sample_index=sample),
                group_index=group,
                sample_index=sample,
            )
            for group, task in enumerate(source_of(entry).tasks(Split.TRAIN)[:3])
            for sample in range(3)
        ],
        group_size=3,
        max_retries=0,
    )
    folder = RunDirectory.create(config).path
    run = RunDirectory(path=folder.rename(folder.with_name("small")))  # its id decides all seeds
    played = EpisodeRun(config, run, plan)
    asyncio.run(
        played.play(
            lambda: ExpertPlayer(config, descriptions=descriptions_of(config), noise=0.5),
            Console(quiet=True),
        )
    )
    assert len({each.success for each in played.results}) == 2
    return config
