"""Points24: solvable hands alone, splits by values, an expert that goes on from any formula."""

from random import Random
from typing import Any

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.cards.deck import named
from longhaul_envs.points.formulas import can_make
from longhaul_envs.points.points24 import Points24


def test_the_expert_makes_24_exactly() -> None:
    """Three, three, eight and eight have one formula, and floating point gives 23.999… for it."""
    environment = Points24()
    environment.reset(options={"task_id": "3S-8H-3D-8C"})
    actions: list[str] = []
    terminated, reward = False, 0.0
    while not terminated:
        actions.append(str(environment.expert_action()))
        _, reward, terminated, *_ = environment.step(actions[-1])
    assert "".join(actions) == "8/(3-8/3)="
    assert reward == 10.0


def test_every_card_has_to_be_used() -> None:
    environment = Points24()
    environment.reset(options={"task_id": "3S-8H-3D-8C"})
    *_, (text, reward, terminated, _, info) = [environment.step(unit) for unit in "3*8="]
    assert text.splitlines()[-1] == "Not every card was used"
    assert (reward, terminated, info["success"]) == (-1.0, True, False)


def test_the_expert_goes_on_from_what_is_written_or_says_that_it_cannot() -> None:
    environment = Points24()
    environment.reset(options={"task_id": "4S-4H-10D-10C"})  # (10 * 10 - 4) / 4
    assert environment.expert_action() == "("
    environment.step("nonsense")
    environment.step("(")
    assert environment.expert_action() == "10"
    environment.step("4")
    assert environment.expert_action() is None


def test_the_expert_does_not_begin_what_would_come_too_late() -> None:
    environment = Points24()
    environment.reset(options={"task_id": "3S-8H-3D-8C"})
    for _ in range(11):
        environment.step("nonsense")
    assert environment.expert_action() == "8"  # nine units fill the twenty
    environment.step("nonsense")
    assert environment.expert_action() is None


def test_no_split_holds_the_values_of_another() -> None:
    environment = Points24()
    met: dict[tuple[int, ...], Split] = {}
    for split in Split:
        for task in environment.tasks(split):
            cards = [named(code) for code in task.task_id.split("-")]
            values = tuple(sorted(card.points for card in cards))
            assert can_make(values, 24, "+-*/")
            assert met.setdefault(values, split) is split
    assert len(met) == 566
    assert len(environment.tasks(Split.TEST)) == 255


def test_face_cards_may_count_more_than_ten() -> None:
    environment = Points24(face_cards_as_ten=False)
    text, _ = environment.reset(options={"task_id": "KS-JH-AD-AC"})
    assert "(worth 13, 11, 1, 1)" in text
    assert environment.step("13")[1] == 0.0
    assert environment.step("10")[1] == -1.0


@pytest.mark.slow
def test_the_expert_solves_every_test_hand_of_some() -> None:
    environment = Points24()
    for task in Random(0).sample(environment.tasks(Split.TEST), 40):
        environment.reset(options={"task_id": task.task_id})
        terminated, reward = False, 0.0
        while not terminated:
            _, reward, terminated, *_ = environment.step(str(environment.expert_action()))
        assert reward == 10.0, task.task_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 0}, "target must be from 1 to 100, got 0"),
        ({"num_hands": 0}, "num_hands must be from 1 to 100, got 0"),
        ({"observation": "sound"}, "observation must be text or image, got 'sound'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Points24(**options)
