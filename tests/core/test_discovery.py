"""Tests for `longhaul_core.discovery`: environments as distributions of their own."""

import asyncio
import sys
from pathlib import Path

import pytest

from longhaul_core.discovery import installed_environments, installed_source
from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split

SOURCE = '''
"""An environment that knows nothing of Gymnasium."""

from longhaul_core.environment import EnvironmentDescription, EnvironmentPrompt, StepResult
from longhaul_core.errors import ConfigError
from longhaul_core.types import Observation, Split, Task


class Echo:
    async def open(self):
        pass

    async def reset(self, task):
        self.word = task.task_id
        return Observation(text=f"say {self.word}")

    async def step(self, action):
        return StepResult(
            observation=Observation(text=action), reward=1.0, terminated=True,
            success=action == self.word,
        )

    async def close(self):
        pass


class EchoSource:
    def __init__(self, options):
        unknown = set(options) - {"loud"}
        if unknown:
            raise ConfigError(f"tiny/Echo-v0 has no option {sorted(unknown)[0]!r}; there is loud")
        self.loud = bool(options.get("loud"))

    def describe(self):
        return EnvironmentDescription(
            id="tiny/Echo-v0", version="1", actions="a word",
            prompt=EnvironmentPrompt(system="Repeat it.", instruction="The word?"),
        )

    def tasks(self, split):
        return [
            Task(
                environment="tiny/Echo-v0", version="1", data_hash="", seed=n, split=split,
                task_id=f"{split}{n}".upper() if self.loud else f"{split}{n}",
            )
            for n in range(3)
        ]

    def make(self, task):
        return Echo()
'''


@pytest.fixture
def tiny_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that holds a module and the metadata of an installed distribution."""
    (tmp_path / "tiny_echo.py").write_text(SOURCE, encoding="utf-8")
    metadata = tmp_path / "tiny_echo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-echo\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[longhaul.environments]\ntiny/Echo-v0 = tiny_echo:EchoSource\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.delitem(sys.modules, "tiny_echo", raising=False)
    return metadata


@pytest.mark.usefixtures("tiny_distribution")
def test_a_distribution_of_its_own_is_listed_described_and_played() -> None:
    assert "tiny/Echo-v0" in installed_environments()
    assert "tiny_echo" not in sys.modules  # listing imports nothing

    source = installed_source("tiny/Echo-v0", {"loud": True})
    description = source.describe()
    task = source.tasks(Split.TEST)[1]

    async def play() -> bool:
        environment = source.make(task)
        await environment.open()
        try:
            first = await environment.reset(task)
            return (await environment.step(first.text.removeprefix("say "))).success
        finally:
            await environment.close()

    assert (description.id, description.actions) == ("tiny/Echo-v0", "a word")
    assert task.task_id == "TEST1"
    assert asyncio.run(play())


@pytest.mark.usefixtures("tiny_distribution")
def test_whoever_names_the_id_of_a_distribution_gets_its_source() -> None:
    from longhaul_envs.sources import environment_source

    source = environment_source(GymEnvironmentSpec(environment_id="tiny/Echo-v0"))

    assert [task.task_id for task in source.tasks(Split.TRAIN)] == ["train0", "train1", "train2"]


@pytest.mark.usefixtures("tiny_distribution")
def test_options_that_a_source_refuses_are_told() -> None:
    with pytest.raises(ConfigError, match=r"^tiny/Echo-v0 has no option 'size'; there is loud"):
        installed_source("tiny/Echo-v0", {"size": 3})


def test_an_id_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"no environment 'no/Such-v0'.*longhaul/Sokoban-v0, lo"):
        installed_source("no/Such-v0", {})


def test_an_entry_point_that_leads_nowhere_is_told(tiny_distribution: Path) -> None:
    (tiny_distribution / "entry_points.txt").write_text(
        "[longhaul.environments]\ntiny/Echo-v0 = tiny_gone:source\n", encoding="utf-8"
    )

    with pytest.raises(ConfigError, match="importing tiny_gone:source: ModuleNotFoundError"):
        installed_source("tiny/Echo-v0", {})


def test_an_id_that_two_distributions_declare_is_refused(tiny_distribution: Path) -> None:
    other = tiny_distribution.parent / "other_echo-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: other-echo\nVersion: 1.0\n", encoding="utf-8"
    )
    (other / "entry_points.txt").write_text(
        "[longhaul.environments]\ntiny/Echo-v0 = other_echo:source\n", encoding="utf-8"
    )

    with pytest.raises(ConfigError, match="'tiny/Echo-v0' is declared twice"):
        installed_environments()
