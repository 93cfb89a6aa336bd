"""Tests for `longhaul_trainer.play.reward_shaping`: what is refused, and what reaches credit."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Trajectory
from longhaul_trainer.play.reward_shaping import load_reward_shaping, shaped_by
from store_samples import make_trajectory

EXAMPLES = Path(__file__).parents[3] / "examples"

MINE = """
import asyncio

def shape(episode):
    return [step.reward for step in episode.steps]

def of_two(episode, horizon):
    return []

def with_an_option(episode, *, price=0.1):
    return []

async def later(episode):
    return []

NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mine_of_test.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine_of_test", raising=False)
    return "mine_of_test"


def test_a_function_that_takes_one_episode_is_found(mine: str) -> None:
    episode = make_trajectory(rewards=(0.5, 1.0))

    assert load_reward_shaping(f"{mine}:shape")(episode) == [0.5, 1.0]
    assert load_reward_shaping(f"{mine}:with_an_option")(episode) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nowhere_at_all:shape",
            "'nowhere_at_all:shape': importing nowhere_at_all: ModuleNotFound",
        ),
        ("mine_of_test:shap", "module mine_of_test has no shap"),
        ("mine_of_test:NUMBER", "NUMBER is not a plain function"),
        ("mine_of_test:later", "later is not a plain function"),
        ("mine_of_test:of_two", r"takes \(episode, horizon\)"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_anything_else_is_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_reward_shaping(name)


def raises(episode: Trajectory) -> Sequence[float]:
    raise KeyError(episode.task.task_id)


def too_few(episode: Trajectory) -> Sequence[float]:
    return [1.0 for _ in episode.steps[1:]]


def not_finite(episode: Trajectory) -> Sequence[float]:
    return [1.0, *(float("nan") for _ in episode.steps[1:])]


def too_large(episode: Trajectory) -> Sequence[float]:
    return [1.0, *(2e30 for _ in episode.steps[1:])]


def no_number(episode: Trajectory) -> Sequence[Any]:
    return ["much" for _ in episode.steps]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (too_few, "gave 1 rewards for an episode of 2 steps"),
        (not_finite, "the reward of step 1 must be finite, .*, got nan"),
        (too_large, "the reward of step 1 must be finite, at most 1e[+]30 in size, got 2e[+]30"),
        (no_number, "ValueError"),
        (raises, "KeyError"),
    ],
)
def test_a_wrong_answer_names_the_function_and_the_episode(
    function: Callable[[Trajectory], Sequence[float]], message: str
) -> None:
    episode = make_trajectory(rewards=(0.5, 1.0), sample_index=3)

    with pytest.raises(ConfigError, match=message) as error:
        shaped_by(function, episode, name="mine:shape")

    assert f"'mine:shape', task {episode.task.task_id!r}, place 3" in str(error.value)


def test_the_example_makes_every_step_cost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    function = load_reward_shaping("reward_shaping:shorter_is_better")
    episode = make_trajectory(rewards=(0.0, 1.0))

    assert shaped_by(function, episode, name="x:y") == pytest.approx((-0.01, 0.99))
