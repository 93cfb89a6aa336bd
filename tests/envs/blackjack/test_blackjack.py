"""Blackjack: rules by hand, the value of the best play, and the expert against it."""

from math import sqrt
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.blackjack.environment import Blackjack
from longhaul_envs.blackjack.rules import (
    Hand,
    best_action,
    compare,
    hand_of,
    value_of_deal,
)
from longhaul_envs.cards.deck import RANKS, Card, named

VALUE_OF_THE_GAME = -0.0465


def hand(codes: str) -> Hand:
    return hand_of(map(named, codes.split()))


def test_an_ace_counts_eleven_where_it_fits() -> None:
    assert hand("AS 6H") == Hand(17, has_soft_ace=True)
    assert hand("AS 6H 9D") == Hand(16, has_soft_ace=False)
    assert hand("AS AH") == Hand(12, has_soft_ace=True)
    assert hand("AS AH KD 9C") == Hand(21, has_soft_ace=False)
    assert hand("10S QH 2D").is_bust


def test_the_comparison() -> None:
    assert compare(hand("10S 9S"), hand("10H 8H")) == 1.0
    assert compare(hand("10S 8S"), hand("10H 8H")) == 0.0
    assert compare(hand("10S 7S"), hand("10H 8H")) == -1.0
    assert compare(hand("2S 3S"), hand("10H 8H 9H")) == 1.0
    assert compare(hand("10S 8S 9S"), hand("10H 8H 9H")) == -1.0


def test_the_best_play_is_the_one_of_the_books() -> None:
    """Of `Example 5.3` of Sutton and Barto: which totals stand against which card."""
    for dealer in range(2, 7):
        assert best_action(Hand(13, has_soft_ace=False), dealer) == "stand"
    for dealer in (1, 7, 8, 9, 10):
        assert best_action(Hand(16, has_soft_ace=False), dealer) == "hit"
        assert best_action(Hand(17, has_soft_ace=False), dealer) == "stand"
    assert best_action(Hand(12, has_soft_ace=False), 3) == "hit"
    assert best_action(Hand(12, has_soft_ace=False), 4) == "stand"
    assert best_action(Hand(18, has_soft_ace=True), 9) == "hit"
    assert best_action(Hand(18, has_soft_ace=True), 8) == "stand"
    assert best_action(Hand(17, has_soft_ace=True), 8) == "hit"


def test_the_value_of_the_game() -> None:
    """Over all first three cards, each as likely."""
    cards = [Card(rank, "S") for rank in range(1, len(RANKS) + 1)]
    values = [
        value_of_deal(hand_of([first, second]), dealer.points)
        for first in cards
        for second in cards
        for dealer in cards
    ]
    assert sum(values) / len(values) == pytest.approx(VALUE_OF_THE_GAME, abs=5e-4)


def test_the_expert_gets_what_the_best_play_is_worth() -> None:
    """Over 4,000 deals as a pack gives them: within three standard errors."""
    environment = Blackjack()
    rewards: list[float] = []
    for seed in range(4000):
        environment.reset(seed=seed)
        terminated, reward = False, 0.0
        while not terminated:
            _, reward, terminated, *_ = environment.step(environment.expert_action())
        rewards.append(reward)
    mean = sum(rewards) / len(rewards)
    deviation = sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    assert abs(mean - VALUE_OF_THE_GAME) < 3 * deviation / sqrt(len(rewards))


def test_the_same_task_and_actions_give_the_same_cards() -> None:
    episodes: list[list[str]] = []
    for _ in range(2):
        environment = Blackjack()
        environment.reset(seed=5)
        seen = [environment.reset(options={"task_id": "2-3/10/0"})[0]]
        terminated = False
        while not terminated:
            text, _, terminated, *_ = environment.step("hit")
            seen.append(text)
        episodes.append(seen)
    assert episodes[0] == episodes[1]
    assert episodes[0][-1].splitlines()[-1] == "You lose"


def test_the_hidden_card_shows_only_at_the_end() -> None:
    environment = Blackjack()
    text, info = environment.reset(options={"task_id": "2-3/10/0"})
    assert text.splitlines()[1].endswith("and a hidden card")
    assert len(info["anchor_state"].split()) == 4  # the task, the dealer's card, two of one's own
    text, reward, terminated, _, info = environment.step("stand")
    assert "hidden" not in text
    assert terminated
    assert info["success"] == (reward == 1.0)
    with pytest.raises(ResetNeeded):
        environment.step("stand")


def test_pictures_of_two_deals_differ_and_texts_do_not() -> None:
    environment = Blackjack(observation="image")
    seen, _ = environment.reset(options={"task_id": "2-3/10/0"})
    other, _ = environment.reset(options={"task_id": "2-4/10/0"})
    assert seen["text"] == other["text"] == "Goal: come nearer to 21 than the dealer"
    assert seen["picture"] != other["picture"]


def test_no_split_begins_as_another_does() -> None:
    environment = Blackjack()
    ranks = {
        split: {task.task_id.rpartition("/")[0] for task in environment.tasks(split)}
        for split in Split
    }
    every = {one for split in Split for one in ranks[split]}
    assert sum(map(len, ranks.values())) == len(every) == 91 * 13
    assert len(environment.tasks(Split.TEST)) == 2 * len(ranks[Split.TEST])


@pytest.mark.parametrize("task_id", ["", "2-3/10", "3-2/10/0", "2-3/10/x", "2-3/1/0"])
def test_an_unknown_deal_is_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match="no Blackjack task is called"):
        Blackjack().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_deals": 0}, "num_deals must be from 1 to 1000, got 0"),
        ({"observation": "sound"}, "observation must be text or image, got 'sound'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Blackjack(**options)


def test_by_verl_agents_scoring_a_loss_pays_nothing_and_is_no_success() -> None:
    paid: dict[str, list[float]] = {}
    for scoring in ("rl4vlm", "verl-agent"):
        game = Blackjack(scoring=scoring)
        paid[scoring] = []
        for task in game.tasks(Split.TEST, 40):
            game.reset(options={"task_id": task.task_id})
            _, reward, over, _, info = game.step("stand")
            assert (over, info["success"]) == (True, reward == 1)
            paid[scoring].append(reward)
    assert -1.0 in paid["rl4vlm"]
    assert paid["verl-agent"] == [max(reward, 0.0) for reward in paid["rl4vlm"]]
