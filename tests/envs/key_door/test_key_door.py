"""KeyDoor: it can be solved, it pays once, and the observation names the state."""

from dataclasses import replace

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.key_door.drawing import rooms_picture
from longhaul_envs.key_door.environment import KeyDoor
from longhaul_envs.key_door.rooms import ACTIONS, Rooms
from longhaul_envs.key_door.tasks import KeyDoorOptions, rooms_of, tasks


@pytest.mark.parametrize("size", [3, 7, 15])
def test_the_expert_reaches_the_goal_and_is_paid_there_alone(size: int) -> None:
    world = KeyDoor(room_size=size)
    for task in tasks(Split.TRAIN, world.options, 20):
        world.reset(options={"task_id": task.task_id})
        rewards: list[float] = []
        over = False
        while not over:
            action = world.expert_action()
            assert action is not None
            observation, reward, over, _, info = world.step(action)
            rewards.append(reward)
            assert info["action_accepted"]
            assert info["success"] == over
            assert len(observation.split()) == 16

        assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
        assert len(rewards) <= 4 * size + 4
        assert world.expert_action() is None


def test_an_episode_by_hand() -> None:
    rooms = Rooms(size=3, at=(0, 0), key=(0, 1), door=(1, 3), goal=(1, 5))
    seen = [rooms.in_words()]
    for action in ("east", "take", "south", "east", "unlock", "east", "east", "east"):
        rooms = rooms.after(action)
        seen.append(rooms.in_words())

    assert seen == [
        "key level 0 east 1 door south 1 east 3 shut goal south 1 east 5",
        "key level 0 level 0 door south 1 east 2 shut goal south 1 east 4",
        "key taken - - - door south 1 east 2 shut goal south 1 east 4",
        "key taken - - - door level 0 east 2 shut goal level 0 east 4",
        "key taken - - - door level 0 east 1 shut goal level 0 east 3",
        "key taken - - - door level 0 east 1 open goal level 0 east 3",
        "key taken - - - door level 0 level 0 open goal level 0 east 2",
        "key taken - - - door level 0 west 1 open goal level 0 east 1",
        "key taken - - - door level 0 west 2 open goal level 0 level 0",
    ]
    assert rooms.is_won


def test_nothing_but_the_key_opens_the_door() -> None:
    rooms = Rooms.laid_out(7, seed=0)
    before_door = replace(rooms, at=rooms.before_door)

    assert before_door.after("unlock") == before_door
    assert before_door.after("east") == before_door
    assert not replace(before_door, key=None).after("unlock").is_shut


def test_admissible_actions_are_those_that_change_something() -> None:
    world = KeyDoor(room_size=3)
    _, info = world.reset(options={"task_id": "3/00001"})
    accepted = {
        action
        for action in (*ACTIONS, "open", "")
        if _accepted(KeyDoor(room_size=3), "3/00001", action)
    }

    assert accepted == set(info["admissible_actions"])
    assert 0 < len(accepted) < len(ACTIONS)


def _accepted(world: KeyDoor, task_id: str, action: str) -> bool:
    world.reset(options={"task_id": task_id})
    return bool(world.step(action)[4]["action_accepted"])


def test_splits_share_no_layout() -> None:
    starts = [
        {rooms_of(task.task_id) for task in tasks(split, KeyDoorOptions())} for split in Split
    ]

    assert [len(start) for start in starts] == [1024, 256, 256]
    assert len(starts[0] | starts[1] | starts[2]) == 1536


@pytest.mark.parametrize("size", [2, 16])
def test_a_room_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"room_size must be from 3 to 15, got {size}"):
        KeyDoor(room_size=size)


@pytest.mark.slow
def test_the_distracted_expert_of_the_benchmark_is_shown_in_known_words() -> None:
    from learning_policy import WORDS, distracted_examples  # imports torch and transformers

    examples = list(distracted_examples())

    assert all(len(prompt) == 17 and max(prompt) < len(WORDS) for prompt, _ in examples)
    assert {action for _, action in examples} == set(range(3, 3 + len(ACTIONS)))


def test_the_picture_shows_what_has_changed() -> None:
    rooms = Rooms(size=3, at=(0, 1), key=(0, 1), door=(1, 3), goal=(1, 5))
    taken = replace(rooms, key=None)
    opened = replace(taken, is_shut=False)
    pictures = [rooms_picture(each) for each in (rooms, taken, opened, replace(opened, at=(2, 2)))]

    assert {picture.shape for picture in pictures} == {(3 * 28, 7 * 28, 3)}
    assert len({picture.tobytes() for picture in pictures}) == 4
