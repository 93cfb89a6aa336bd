"""The world of the learning benchmark: it can be solved, it pays once, and its words are known."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Gymnasium is typed in part.

import pytest
from key_door import ACTIONS, ID, MOVES, WORDS, KeyDoor

from longhaul_core.environment import EnvironmentSource
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs.sources import environment_source


@pytest.fixture
def source() -> EnvironmentSource:
    return environment_source(
        GymEnvironmentSpec(environment_id=ID, options={}, import_modules=("key_door",))
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_expert_reaches_the_goal_and_is_paid_there_alone(seed: int) -> None:
    world = KeyDoor()
    observation, _ = world.reset(seed=seed)
    rewards: list[float] = []
    over = False
    while not over:
        assert set(observation.split()) <= {*WORDS, *MOVES}
        assert len(observation.split()) == 16
        observation, reward, over, _, info = world.step(world.action_toward(world.place_to_go()))
        rewards.append(reward)
        assert info["success"] == over

    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert len(rewards) <= 34


def test_nothing_opens_the_door_but_the_key() -> None:
    world = KeyDoor()
    world.reset(seed=0)
    row, column = world.door
    world.at = row, column - 1

    before, _, _, _, _ = world.step("unlock")
    world.step("east")

    assert "shut" in before
    assert world.at == (row, column - 1)


def test_splits_share_no_layout(source: EnvironmentSource) -> None:
    starts = [
        {KeyDoor().reset(seed=task.seed)[0] for task in source.tasks(split)} for split in Split
    ]

    assert [len(start) for start in starts] == [1024, 256, 256]
    assert len(set().union(*starts)) == 1536


@pytest.mark.slow
def test_the_distracted_expert_is_shown_in_known_words(source: EnvironmentSource) -> None:
    from learning_policy import distracted_examples  # imports torch and transformers

    examples = list(distracted_examples(source))

    words = len(WORDS) + len(ACTIONS) + 3
    assert all(len(prompt) == 17 and max(prompt) < words for prompt, _ in examples)
    assert {action for _, action in examples} == set(range(3, 3 + len(ACTIONS)))
