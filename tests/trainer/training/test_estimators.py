"""Tests for `longhaul_trainer.config.estimator_settings`: estimators of the user's own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from longhaul_core.advantages.estimators import ESTIMATORS, Group
from longhaul_core.advantages.grpo import grpo_credit
from longhaul_core.errors import ConfigError
from longhaul_trainer.config import AlgorithmConfig
from longhaul_trainer.config.estimator_settings import own_estimator, smallest_group
from longhaul_trainer.training.estimate import estimate

MINE = """
from dataclasses import replace
from longhaul_core.advantages import EpisodeCredit
from longhaul_core.advantages.estimators import ESTIMATORS, Group
from longhaul_core.advantages.grpo import grpo_credit

def first_step(groups, settings):
    found = []
    for group in groups:
        weight = settings.options.get("weight", 1.0)
        credits = grpo_credit(group.step_rewards, scale_by_std=settings.scale_by_std)
        found.append(tuple(
            replace(credit, advantages=(weight * credit.advantages[0], *credit.advantages[1:]))
            for credit in credits
        ))
    return found

def of_one_group(groups, settings):
    return first_step(groups[:1], settings)

def numbers(groups, settings):
    return [[1.0 for _ in group.step_rewards] for group in groups]

def too_short(groups, settings):
    return [[replace(c, advantages=c.advantages[:1]) for c in g]
            for g in first_step(groups, settings)]

def infinite(groups, settings):
    return [[replace(c, episode_advantage=float("inf")) for c in g]
            for g in first_step(groups, settings)]

def nothing(groups, settings):
    return None

def of_a_group(group):
    return ()

def raises(groups, settings):
    return settings.options["weight"]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "estimator_of_mine.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "estimator_of_mine", raising=False)
    return "estimator_of_mine"


def group(name: str, *rewards: list[float]) -> Group:
    steps = [np.array(each) for each in rewards]
    return Group(
        name=name,
        step_rewards=steps,
        anchor_states=[[str(n) for n in range(len(each))] for each in rewards],
        final_states=[None for _ in rewards],
        num_action_tokens=[[1] * len(each) for each in rewards],
    )


GROUPS = [group("a", [0.0, 1.0], [3.0, 0.0]), group("b", [2.0, 0.0], [0.0, 0.0], [1.0, 1.0])]


def test_a_function_of_ones_own_credits_every_group_with_its_options(mine: str) -> None:
    algorithm = AlgorithmConfig(
        name=f"{mine}:first_step", scale_by_std=False, options={"weight": 3.0}
    )

    found = estimate(GROUPS, algorithm)

    for credits, of in zip(found, GROUPS, strict=True):
        whole = grpo_credit(of.step_rewards, scale_by_std=False)
        expected = [(3 * each.advantages[0], each.advantages[1]) for each in whole]
        assert [credit.advantages for credit in credits] == expected
    assert found[0][0].advantages == (-3.0, -1.0)


@pytest.mark.parametrize(
    ("name", r"message"),
    [
        ("of_one_group", r"one credit per episode of each group, for groups of \[2, 3\] episodes"),
        ("nothing", r"got None"),
        ("numbers", r"group 'a', episode 0: got a float, expected a .*EpisodeCredit"),
        ("too_short", r"episode 0: has 2 steps, and its credit has \[1, 2, 2\] advantages"),
        ("infinite", r"episode 0: its credit has a number that is not finite"),
        ("raises", r": KeyError: 'weight'"),
        ("of_a_group", r"is called as of_a_group\(groups, settings\), and takes \(group\)"),
    ],
)
def test_what_is_no_credit_of_the_groups_ends_the_run_by_name(
    mine: str, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        estimate(GROUPS, AlgorithmConfig(name=f"{mine}:{name}"))

    assert str(raised.value).startswith(f"algorithm.name = '{mine}:{name}'")


def test_groups_of_an_estimator_of_ones_own_have_two_episodes_at_least() -> None:
    assert smallest_group(AlgorithmConfig(name="mine:credit")) == 2
    assert smallest_group(AlgorithmConfig(name="gae")) == 1
    assert smallest_group(AlgorithmConfig(name="pass_at_k", pass_k=4)) == 4


def test_a_built_in_name_is_no_path() -> None:
    assert own_estimator("grpo") is ESTIMATORS["grpo"].compute
    with pytest.raises(ConfigError, match=r"algorithm\.name = 'gprpo': must be one of drgrpo, "):
        own_estimator("gprpo")


def test_the_registry_is_read_without_the_training_stack() -> None:
    code = (
        "import sys, longhaul_trainer.config.estimator_settings;"
        "print(sorted({'torch', 'verl', 'ray', 'transformers'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
