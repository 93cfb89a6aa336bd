"""NumberLine: the authors' rewards, both observations, its tasks."""

from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.number_line.environment import NumberLine


def test_an_episode_worked_by_hand() -> None:
    environment = NumberLine(max_position=5)
    text, info = environment.reset(options={"task_id": "5/1-3"})
    assert text == "Goal: bring the current number to the target\nTarget: 3\nCurrent: 1"
    assert info["admissible_actions"] == ["-", "+"]

    rewards = [environment.step(action)[1] for action in ("-", "-", "dance", "+", "+")]
    assert rewards == [-1.0, -1.0, -1.0, 0.0, 0.0]  # away, against the end, nonsense, nearer twice
    text, reward, terminated, truncated, info = environment.step("+")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    with pytest.raises(ResetNeeded):
        environment.step("+")


def test_nonsense_is_answered_and_moves_nothing() -> None:
    environment = NumberLine()
    _, before = environment.reset(options={"task_id": "12/3-9"})
    text, _, _, _, info = environment.step("+ +")
    assert text.endswith("That is no action here: the actions are + and -")
    assert not info["action_accepted"]
    assert info["anchor_state"] == before["anchor_state"]


def test_a_picture_tells_what_the_text_leaves_out() -> None:
    environment = NumberLine(observation="image")
    seen, _ = environment.reset(options={"task_id": "12/3-9"})
    other, _ = environment.reset(options={"task_id": "12/4-9"})

    assert not any(character.isdecimal() for character in seen["text"])
    assert seen["text"] == other["text"]
    assert seen["picture"] != other["picture"]


def test_every_pair_is_in_one_split_and_the_expert_takes_the_shortest_way() -> None:
    environment = NumberLine()
    listed = [task.task_id for split in Split for task in environment.tasks(split)]
    assert len(set(listed)) == len(listed) == 13 * 12
    assert len(environment.tasks(Split.TEST)) == 24
    for task in environment.tasks(Split.TEST):
        environment.reset(options={"task_id": task.task_id})
        start, target = map(int, task.task_id.removeprefix("12/").split("-"))
        rewards = [
            environment.step(environment.expert_action())[1] for _ in range(abs(start - target))
        ]
        assert rewards == [0.0] * (abs(start - target) - 1) + [1.0]


@pytest.mark.parametrize("task_id", ["", "12/3", "12/3-3", "12/3-13", "1000/1-2", "12/-1-3"])
def test_an_unknown_task_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match="no NumberLine task is called"):
        NumberLine().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_position": 1}, "max_position must be from 2 to 100, got 1"),
        ({"observation": "sound"}, "observation must be text or image, got 'sound'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NumberLine(**options)


def test_by_verl_agents_scoring_what_names_no_action_pays_nothing() -> None:
    line = NumberLine(scoring="verl-agent")
    line.reset(options={"task_id": "12/3-5"})

    assert [line.step(action)[1] for action in ("left", "-", "+", "+", "+")] == [0, -1, 0, 0, 1]
    with pytest.raises(ConfigError, match="scoring must be rl4vlm or verl-agent"):
        NumberLine(scoring="ours")
