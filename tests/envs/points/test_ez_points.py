"""EZPoints: the authors' rewards and ends, its hands, and what a picture may tell."""

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.types import Split
from longhaul_envs.cards.deck import named
from longhaul_envs.points.ez_points import EZPoints


def test_an_episode_worked_by_hand() -> None:
    environment = EZPoints()
    text, info = environment.reset(options={"task_id": "KH-2S"})
    assert text == (
        "Goal: write a formula that makes 12, each card used once\n"
        "Cards: K\u2665 2\u2660 (worth 10, 2)\n"
        "Formula:"
    )
    assert info["admissible_actions"] == ["2", "10", "+", "*", "="]

    _, reward, *_, info = environment.step("10")
    assert (reward, info["admissible_actions"]) == (0.0, ["2", "+", "*", "="])
    text, reward, terminated, _, info = environment.step("10")
    assert (reward, terminated, info["action_accepted"]) == (-1.0, False, False)
    assert text.endswith("Formula: 10 _\nNo card of value 10 is left")
    environment.step("+")
    environment.step("2")
    text, reward, terminated, truncated, info = environment.step("=")
    assert (reward, terminated, truncated, info["success"]) == (10.0, True, False, True)
    assert text.endswith("Formula: 10 _ + 2\nThat is 12")
    with pytest.raises(ResetNeeded):
        environment.step("=")


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (["="], "Not every card was used"),
        (["2", "="], "Not every card was used"),
        (["2", "10", "="], "That is not 12"),
        (["2", "*", "10", "="], "That is not 12"),
        (["+", "*", "2", "10", "="], "That is not 12"),
    ],
)
def test_a_wrong_formula_costs_one(actions: list[str], said: str) -> None:
    environment = EZPoints()
    environment.reset(options={"task_id": "KH-2S"})
    *_, (text, reward, terminated, _, info) = [environment.step(action) for action in actions]
    assert text.splitlines()[-1] == said
    assert (reward, terminated, info["success"]) == (-1.0, True, False)


def test_the_action_after_six_units_cuts_the_game_off() -> None:
    environment = EZPoints()
    environment.reset(options={"task_id": "KH-2S"})
    for action in ["nonsense"] * 3 + ["+"] * 3:
        _, reward, terminated, truncated, _ = environment.step(action)
        assert (reward, terminated, truncated) == (-1.0 * (action != "+"), False, False)
    _, reward, terminated, truncated, info = environment.step("=")
    assert (reward, terminated, truncated, info["success"]) == (-1.0, False, True, False)


def test_every_hand_makes_twelve_and_is_in_one_split() -> None:
    environment = EZPoints()
    hands = {split: environment.tasks(split) for split in Split}
    met = [frozenset(task.task_id.split("-")) for tasks in hands.values() for task in tasks]
    assert len(met) == len(set(met)) > 150
    assert len(hands[Split.TEST]) >= 20
    for task in hands[Split.TEST]:
        first, second = (named(code).points for code in task.task_id.split("-"))
        assert 12 in (first + second, first * second)
        environment.reset(options={"task_id": task.task_id})
        rewards = [environment.step(str(environment.expert_action()))[1] for _ in range(4)]
        assert rewards == [0.0, 0.0, 0.0, 10.0]


def test_with_pictures_neither_text_nor_actions_name_the_cards() -> None:
    environment = EZPoints(observation="image")
    seen, info = environment.reset(options={"task_id": "KH-2S"})
    other, _ = environment.reset(options={"task_id": "3H-4S"})
    assert seen["text"] == other["text"]
    assert seen["picture"] != other["picture"]
    assert "admissible_actions" not in info


@pytest.mark.parametrize("task_id", ["", "KH", "KH-2S-3S", "KH-2X", "0H-2S"])
def test_an_unknown_hand_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match=r"no card is called|names 2 cards"):
        EZPoints().reset(options={"task_id": task_id})


def test_by_verl_agents_scoring_nothing_costs_and_what_is_refused_is_not_written() -> None:
    game = EZPoints(scoring="verl-agent")
    game.reset(options={"task_id": "2S-10H"})
    rewards = [game.step(unit)[1] for unit in ("7", "stop", "2", "+", "10", "=")]
    assert rewards == [0, 0, 0, 0, 0, 10]

    game.reset(options={"task_id": "2S-10H"})
    assert game.step("=")[1:3] == (0, True)
    game.reset(options={"task_id": "2S-10H"})
    assert "_" not in game.step("7")[0]
    for unit in "++++++":
        game.step(unit)
    for unit in ("=", "2", "="):  # its worker plays on, and no formula is evaluated any more
        assert game.step(unit)[1:4] == (0, False, False)
