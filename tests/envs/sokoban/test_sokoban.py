"""Sokoban as an environment: rewards, observations, task ids, options."""

from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs import registry
from longhaul_envs.sokoban.board import symmetric_forms
from longhaul_envs.sokoban.environment import Sokoban

registry.register_all()


def solve(environment: Sokoban) -> list[float]:
    rewards: list[float] = []
    terminated = False
    while not terminated:
        action = environment.expert_action()
        assert action is not None
        _, reward, terminated, truncated, _ = environment.step(action)
        rewards.append(float(reward))
        assert not truncated
    return rewards


def test_only_the_last_step_is_paid_by_default() -> None:
    environment = Sokoban()
    environment.reset(options={"task_id": "6x6-1/00012"})
    rewards = solve(environment)
    assert rewards[-1] == 1.0
    assert not any(rewards[:-1])


def test_boxes_and_steps_can_be_paid() -> None:
    """Two boxes at 0.25, every step at -0.125, the end at 1: all exact in binary."""
    environment = Sokoban(num_boxes=2, box_reward=0.25, step_penalty=0.125)
    environment.reset(options={"task_id": "6x6-2/00003"})
    rewards = solve(environment)
    assert sum(rewards) == 1 + 2 * 0.25 - 0.125 * len(rewards)


def test_a_blocked_move_is_not_accepted_and_not_listed() -> None:
    environment = Sokoban()
    for task in environment.tasks(Split.TRAIN, 10):
        _, info = environment.reset(options={"task_id": task.task_id})
        for action in ("up", "down", "left", "right"):
            environment.reset(options={"task_id": task.task_id})
            _, _, _, _, after = environment.step(action)
            listed = action in info["admissible_actions"]
            assert after["action_accepted"] == listed
            assert (after["anchor_state"] != info["anchor_state"]) == listed


def test_both_observations_tell_of_the_same_level() -> None:
    texts = [
        Sokoban(observation=form).reset(options={"task_id": "6x6-1/00012"})[0]
        for form in ("grid", "relative")
    ]
    assert texts[0].splitlines()[1:] == [
        "# # # # # #",
        "# _ _ _ _ #",
        "# _ $ _ . #",
        "# _ _ _ @ #",
        "# _ _ # _ #",
        "# # # # # #",
    ]
    assert texts[1].splitlines()[1:] == [
        "Boxes: 1 up 2 left",
        "Targets: 1 up",
        "Beside you: up free, down free, left free, right wall",
    ]


def test_no_split_holds_a_level_of_another_turned_or_mirrored() -> None:
    environment = Sokoban(size=5, min_pushes=1)
    met: dict[str, Split] = {}
    for split in Split:
        for task in environment.tasks(split):
            _, info = environment.reset(options={"task_id": task.task_id})
            form = min(symmetric_forms(info["anchor_state"].splitlines()))
            assert form not in met
            met[form] = split
    assert len(met) > 20


def test_a_stuck_box_leaves_the_expert_without_advice() -> None:
    environment = Sokoban()
    for task in environment.tasks(Split.TRAIN, 50):
        environment.reset(options={"task_id": task.task_id})
        for action in ["up", "left"] * 6:
            if environment.step(action)[2]:
                break
        else:
            if environment.expert_action() is None:
                return
    pytest.fail("no level could be spoilt by pushing into the upper left corner")


def test_a_step_before_reset_or_after_the_end_is_refused() -> None:
    environment = Sokoban()
    with pytest.raises(ResetNeeded):
        environment.step("up")
    environment.reset(seed=1)
    solve(environment)
    with pytest.raises(ResetNeeded):
        environment.step("up")


@pytest.mark.parametrize("task_id", ["", "6x6-1", "6x7-1/0", "6x6-1/x", "4x4-1/0", "5x5-4/0"])
def test_an_unknown_task_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match=r"no Sokoban task is called|must be from"):
        Sokoban().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 4}, "size must be from 5 to 10, got 4"),
        ({"size": 11}, "size must be from 5 to 10, got 11"),
        ({"size": 5, "num_boxes": 3}, "num_boxes must be from 1 to 2 for size 5, got 3"),
        ({"num_boxes": 0}, "num_boxes must be from 1 to 4 for size 6, got 0"),
        ({"min_pushes": 0}, "min_pushes must be at least 1, got 0"),
        ({"observation": "sound"}, "observation must be grid, relative or image, got 'sound'"),
        ({"box_reward": 2.0}, r"box_reward must lie in \[0, 1\], got 2.0"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gymnasium.make("longhaul/Sokoban-v0", **options)
