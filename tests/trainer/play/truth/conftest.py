# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (transformers and safetensors annotate little of what they return)
"""A store in which groups of a small KeyDoor were played, as a training would."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from longhaul_core.rollout import EpisodeSpec, episode_seed
from longhaul_core.truth import explored
from longhaul_core.types import Split
from longhaul_envs.key_door.rooms import ACTIONS
from longhaul_envs.players import opened
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.models.small import write_small_model
from longhaul_trainer.models.tiny import favour
from longhaul_trainer.play.environments import descriptions_of, environment_spec, source_of
from longhaul_trainer.play.episode_run import EpisodeRun, Plan
from longhaul_trainer.play.players import ExpertPlayer
from longhaul_trainer.play.small_policy import small_player
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


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a token for each word of a small KeyDoor, which writes mostly its moves."""
    folder = tmp_path_factory.mktemp("small")
    (entry,) = parse_config(SMALL_KEY_DOOR).played_environments
    texts = list(ACTIONS) * 40
    with opened(environment_spec(entry)) as world:
        for task in source_of(entry).tasks(Split.TRAIN)[:8]:
            texts += [seen.text for seen in explored(world, task, horizon=30).states]
    write_small_model(folder, texts, num_layers=1, hidden_size=32, vocabulary_size=330)
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "proj" in name:
            weights[name] = 4 * weights[name]  # what it writes depends on what it reads
    number = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids
    favour(weights, {number(word): 20_000.0 for word in ACTIONS})
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def played(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Groups of a training that this model played, by the way in which branches play it."""
    words = [f"model.path={small_model}", "rollout.max_reply_tokens=1", "rollout.horizon=40"]
    words += ["prompt.list_actions=false", "prompt.instruction=", "model.engine_dtype=float32"]
    words += ["rollout.temperature=0.4", "rollout.top_p=0.97"]
    folder = tmp_path_factory.mktemp("played")
    config = parse_config(SMALL_KEY_DOOR, words).with_absolute_paths(folder)
    (entry,) = config.played_environments
    specs = [
        EpisodeSpec(
            task=task,
            seed=episode_seed(0, training_step=1, group_index=group, sample_index=sample),
            group_index=group,
            sample_index=sample,
        )
        for group, task in enumerate(source_of(entry).tasks(Split.TRAIN)[:4])
        for sample in range(4)
    ]
    plan = Plan(kind="train", phase="train", specs=specs, group_size=4, max_retries=0)
    run = EpisodeRun(config, RunDirectory.create(config), plan)
    asyncio.run(run.play(lambda: small_player(config), Console(quiet=True)))
    return config
