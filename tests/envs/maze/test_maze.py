"""Maze: the authors' maze and made ones, what is seen, what is paid, and the shortest way."""

from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.maze.environment import Maze
from longhaul_envs.maze.layouts import DOUBLE_T, make_layout


def solve(environment: Maze) -> list[float]:
    rewards: list[float] = []
    while (action := environment.expert_action()) is not None:
        rewards.append(float(environment.step(action)[1]))
    return rewards


def test_an_episode_worked_by_hand() -> None:
    environment = Maze()
    text, info = environment.reset(options={"task_id": "double_t/7-6"})
    assert text == (
        "Goal: reach the goal of the maze\n"
        "The goal is at position 8, 6.\n"
        "You are at position 7, 6.\n"
        "Walls: to your right, to your left."
    )
    assert info["admissible_actions"] == ["move up", "move down"]
    text, reward, terminated, _, after = environment.step("move left")
    assert text.endswith("A wall stopped you")
    assert (reward, terminated, after["action_accepted"]) == (0.0, False, False)
    assert after["anchor_state"] == info["anchor_state"]
    text, reward, terminated, truncated, info = environment.step(" Move  DOWN ")
    assert text.endswith("You reached the goal.")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(ResetNeeded):
        environment.step("move up")


@pytest.mark.parametrize(
    ("reward", "paid"),
    [
        ("success", [0.0, 0.0, 0.0, 1.0]),
        ("standard_reward", [-4.0, -1.0, -1.0, 0.0]),
        ("illegal_penalty_reward", [-1.0, 0.0, 0.0, 1.0]),
        ("illegal_penalty_diff_scale", [-100.0, -1.0, -1.0, 1.0]),
    ],
)
def test_the_authors_rewards(reward: str, paid: list[float]) -> None:
    """Of nonsense, a step into a wall, a step, and the step to the goal."""
    environment = Maze(reward=reward)
    environment.reset(options={"task_id": "double_t/6-6"})
    actions = ("jump", "move left", "move down", "move down")
    assert [environment.step(action)[1] for action in actions] == paid


def test_three_ways_to_see_the_same_place() -> None:
    texts = [
        Maze(observation=form).reset(options={"task_id": "double_t/5-3"})[0].splitlines()[1:]
        for form in ("position", "walls", "grid")
    ]
    assert texts[0][-1:] == texts[1] == ["Walls: to your left, below you."]
    assert texts[2] == [
        "# # # # # # # # # # # # #",
        "# . . . . . # . . . . . #",
        "# # # . # # # # # . # # #",
        "# # # . # # # # # . # # #",
        "# # # . # # # # # . # # #",
        "# # # @ . . . . . . # # #",
        "# # # # # # . # # # # # #",
        "# # # # # # . # # # # # #",
        "# # # # # # G # # # # # #",
        "# # # # # # # # # # # # #",
    ]


def test_the_double_t_has_25_starts_and_all_reach_the_goal() -> None:
    """The authors' list has 26: one of them is the goal itself."""
    environment = Maze(mazes=("double_t",))
    listed = [task.task_id for split in Split for task in environment.tasks(split)]
    assert len(listed) == len(set(listed)) == 25
    assert len(DOUBLE_T.open_cells()) == len(DOUBLE_T.distances()) == 26
    for task_id in listed:
        environment.reset(options={"task_id": task_id})
        assert solve(environment)[-1] == 1.0


def test_every_cell_of_a_made_maze_reaches_the_goal_on_a_way_of_the_listed_length() -> None:
    environment = Maze(mazes=("random",), min_steps=10, max_steps=20)
    for task in environment.tasks(Split.TRAIN, 20):
        environment.reset(options={"task_id": task.task_id})
        assert 10 <= len(solve(environment)) <= 20
    for seed in range(30):
        layout = make_layout(9, 13, seed)
        assert len(layout.distances()) == len(layout.open_cells())


def test_no_maze_is_in_two_splits() -> None:
    environment = Maze(mazes=("random",), height=7, width=7, min_steps=1)
    met: dict[str, Split] = {}
    for split in Split:
        for task in environment.tasks(split, 50):
            _, info = environment.reset(options={"task_id": task.task_id})
            walls = info["anchor_state"].replace("@", ".").replace("G", ".").partition("goal")[0]
            assert met.setdefault(walls, split) is split
    assert len(met) > 10


def test_the_picture_follows_the_player() -> None:
    environment = Maze()
    environment.reset(options={"task_id": "double_t/7-6"})
    before = environment.render()
    environment.step("move up")
    assert before.shape == environment.render().shape == (280, 364, 3)
    assert (before != environment.render()).any()


@pytest.mark.parametrize(
    "task_id", ["", "double_t/8-6", "double_t/0-0", "9x13", "9x13/x", "8x13/1", "33x33/1"]
)
def test_an_unknown_task_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match=r"no Maze task is called|must be odd"):
        Maze().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mazes": ()}, "mazes must be one or more of double_t, random, each once"),
        ({"mazes": ("spiral",)}, "mazes must be one or more of double_t, random, each once"),
        ({"height": 8}, "height must be odd and from 7 to 31, got 8"),
        ({"width": 33}, "width must be odd and from 7 to 31, got 33"),
        ({"min_steps": 9, "max_steps": 5}, "min_steps must be at least 1 and at most max_steps"),
        ({"observation": "smell"}, "observation must be one of position, walls, grid"),
        ({"reward": "none"}, "reward must be one of success, standard_reward"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Maze(**options)
