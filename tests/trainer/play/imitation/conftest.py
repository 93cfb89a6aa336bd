"""A store in which the expert of a small environment has played."""

from pathlib import Path

import pytest
from rich.console import Console

from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.imitation.expert import run_demonstration
from longhaul_trainer.run.directory import RunDirectory

NUMBER_LINE = """
name = "experts"
num_training_steps = 2
tasks_per_training_step = 4

[model]
path = "tiny"

[environment]
id = "longhaul/NumberLine-v0"
isolation = "thread"

[rollout]
group_size = 2
horizon = 12
max_prompt_tokens = 600
max_reply_tokens = 8

[memory]
kind = "window"
size = 2

[actions]
format = "plain"

[validation]
num_tasks = 8
test_num_tasks = 8
"""


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The run whose prompts an expert answered, twenty tasks of it; its store holds them."""
    folder = tmp_path_factory.mktemp("experts")
    config = parse_config(NUMBER_LINE).with_absolute_paths(folder)
    run = RunDirectory.create(config)
    _, played, num_planned = run_demonstration(
        config, run, split=Split.TRAIN, num_tasks=20, console=Console(quiet=True)
    )
    assert len(played) == num_planned == 20
    assert all(each.success for each in played)
    return config


@pytest.fixture
def imitating(experts: RunConfig) -> "Imitating":
    """Makes runs that imitate it."""
    return Imitating(experts)


class Imitating:
    """Makes runs that imitate a run of the store."""

    def __init__(self, experts: RunConfig) -> None:
        self._experts = experts

    @property
    def folder(self) -> Path:
        return Path(self._experts.store).parent

    def __call__(self, *settings: str, sources: str = '[{ run = "experts" }]') -> RunConfig:
        overrides = [f"imitation.sources={sources}", *settings]
        return parse_config(NUMBER_LINE, overrides).with_absolute_paths(self.folder)
