"""Which of BabyAI's levels there are, and which of them its expert solves."""

import gymnasium
import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.babyai.environment import BabyAI
from longhaul_envs.babyai.levels import ALL, WITHOUT_EXPERT, all_levels, expand, ids_by_level
from longhaul_envs.play import expert_policy, play


def solves(level: str) -> bool:
    environment = BabyAI(levels=[level])
    (task,) = environment.tasks(Split.TEST, 1)
    return play(environment, task, expert_policy, horizon=300).success


def test_every_registered_level_can_be_named() -> None:
    assert set(ids_by_level().values()) == {
        name for name in gymnasium.registry if name.startswith("BabyAI-")
    }
    assert ids_by_level()["GoToObjS6"] == "BabyAI-GoToObjS6-v1"
    assert len(all_levels()) > 90
    assert set(all_levels()) > WITHOUT_EXPERT


def test_all_stands_for_those_that_the_bot_solves() -> None:
    assert set(expand((ALL,))) == set(all_levels()) - WITHOUT_EXPERT
    tasks = BabyAI(levels=ALL).tasks(Split.TEST, 200)
    assert len({task.task_id.split("/")[0] for task in tasks}) == len(expand((ALL,)))


def test_a_level_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="called 'GoToMars'; there are ActionObjDoor, "):
        BabyAI(levels=["GoToMars"])
    with pytest.raises(ConfigError, match="levels is 'all' alone or names levels"):
        BabyAI(levels=["GoToObj", "all"])


@pytest.mark.parametrize("level", sorted(WITHOUT_EXPERT))
def test_a_level_that_the_bot_gives_up_can_be_played_by_name(level: str) -> None:
    environment = BabyAI(levels=[level])
    (task,) = environment.tasks(Split.TEST, 1)
    text, info = environment.reset(options={"task_id": task.task_id})

    assert "Goal: " in text
    assert info["admissible_actions"]
    if level.endswith("Carrying"):
        assert "Carrying: nothing" not in text


def test_the_expert_gives_up_where_its_bot_would_search_without_end() -> None:
    environment = BabyAI(levels=["GoToImpUnlock"])
    endless = next(
        t for t in environment.tasks(Split.TEST, 16) if t.task_id == "GoToImpUnlock/00014"
    )

    assert not play(environment, endless, expert_policy, horizon=100).success


@pytest.mark.slow
def test_the_expert_solves_every_level_but_those_named() -> None:
    assert {level for level in all_levels() if not solves(level)} <= WITHOUT_EXPERT
    assert not any(map(solves, ("KeyInBox", "PutNextS5N2Carrying", "PutNextS7N4Carrying")))
