"""BabyAI as text: what is seen, what is offered, and what a high-level action does."""

from typing import Any

import gymnasium
import minigrid
import pytest
from gymnasium.error import ResetNeeded
from minigrid.envs.babyai.core import roomgrid_level

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs import registry
from longhaul_envs.babyai import tasks as babyai_tasks
from longhaul_envs.babyai.environment import BabyAI
from longhaul_envs.babyai.world import Move, World
from longhaul_envs.play import expert_policy, play

registry.register_all()


def test_an_observation_tells_goal_objects_way_and_load() -> None:
    text, info = BabyAI().reset(options={"task_id": "GoToLocal/00012"})
    assert text == (
        "Goal: go to the grey box\n"
        "You know: blue ball 1 (2 left); green box 1 (1 ahead 1 right); "
        "yellow key 1 (1 ahead 3 left)\n"
        "Ahead: 1 free\n"
        "Carrying: nothing"
    )
    assert info["admissible_actions"][:2] == ["go to blue ball 1", "pick up blue ball 1"]


def test_a_task_of_another_release_of_minigrid_is_another_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its generator draws the worlds, and its rules decide what a move does."""
    here = BabyAI(remember=False).tasks(Split.TEST, 1)[0]

    def another(name: str) -> str:
        return f"{name} 99"

    monkeypatch.setattr(babyai_tasks, "release_of", another)
    there = BabyAI(remember=False).tasks(Split.TEST, 1)[0]

    assert here.version == f"1+minigrid={minigrid.__version__}+remember=False"
    assert there.version == "1+minigrid=minigrid 99+remember=False"
    assert here.task_id == there.task_id


def test_what_is_told_lies_where_it_is_told_to_lie() -> None:
    """Checked against MiniGrid's own grid, for the four directions that one can face."""
    for seed in range(12):
        world = World("GoToLocal")
        world.reset(seed)
        column, row, direction = world.place
        for sight in world.sights():
            ahead, right = {0: (1, 1j), 1: (1j, -1), 2: (-1, -1j), 3: (-1j, 1)}[direction]
            cell = complex(column, row) + sight.ahead * ahead + sight.right * right
            item = world.minigrid.grid.get(int(cell.real), int(cell.imag))
            assert sight.name.startswith(f"{item.color} {item.type}")


def test_what_is_known_is_what_minigrids_own_mask_says() -> None:
    world = World("GoTo")
    for seed in range(5):
        world.reset(seed)
        _, visible = world.minigrid.gen_obs_grid()
        seen = {
            tuple(cell)
            for cell in (
                (x, y) for x in range(world.minigrid.width) for y in range(world.minigrid.height)
            )
            if world.minigrid.in_view(*cell) and visible[world.minigrid.relative_coords(*cell)]
        }
        known = {(int(x), int(y)) for x, y in zip(*world.known_XY.nonzero(), strict=True)}
        assert known == seen


def test_a_level_that_minigrid_draws_again_says_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[object] = []

    def note(*words: object) -> None:
        drawn.append(words[0])

    with monkeypatch.context() as patch:
        patch.setitem(vars(roomgrid_level), "print", note)
        for seed in range(20):
            World("GoToSeq").reset(seed)
    assert "Sampling rejected:" in drawn

    for seed in range(20):
        World("GoToSeq").reset(seed)

    assert capfd.readouterr() == ("", "")


def test_go_to_ends_in_front_of_the_object() -> None:
    environment = BabyAI(levels=["PutNextLocal"])
    for task in environment.tasks(Split.TRAIN, 5):
        _, info = environment.reset(options={"task_id": task.task_id})
        for action in [a for a in info["admissible_actions"] if a.startswith("go to ")]:
            environment.reset(options={"task_id": task.task_id})
            text, *_ = environment.step(action)
            assert f"{action.removeprefix('go to ')} (1 ahead)" in text


def test_pick_up_and_put_down_next_to_move_the_object() -> None:
    environment = BabyAI(levels=["PutNextLocal"])
    _, info = environment.reset(options={"task_id": "PutNextLocal/00003"})
    text, *_ = environment.step("pick up red key 1")
    assert "Carrying: red key 1" in text
    assert "red key 1 (" not in text
    text, reward, _, _, info = environment.step("put down next to red ball 1")
    assert "Carrying: nothing" in text
    assert "red key 1 (1 ahead)" in text
    assert reward == 0.0
    assert info["action_accepted"]


def test_a_door_is_gone_through_only_with_its_key() -> None:
    environment = BabyAI(levels=["UnlockLocal"])
    locked_seen = opened = 0
    for task in environment.tasks(Split.TRAIN, 6):
        text, info = environment.reset(options={"task_id": task.task_id})
        for _ in range(30):
            if "locked" in text:
                locked_seen += 1
                can_open = any(a.startswith("open ") for a in info["admissible_actions"])
                assert can_open == ("Carrying: nothing" not in text)
            action = environment.expert_action()
            text, _, terminated, _, info = environment.step(str(action))
            if terminated:
                opened += info["success"]
                break
    assert locked_seen > 0
    assert opened == 6


@pytest.mark.parametrize("remember", [True, False])
def test_what_is_behind_is_told_only_by_memory(remember: bool) -> None:
    environment = BabyAI(remember=remember)
    environment.reset(options={"task_id": "GoToLocal/00012"})
    environment.step("turn right")
    text, *_ = environment.step("turn right")
    assert ("yellow key 1 (1 behind 3 right)" in text) == remember
    assert ("yellow key" in text) == remember


def test_the_same_place_reached_by_another_way_is_the_same_anchor() -> None:
    environment = BabyAI()
    anchors: list[str] = []
    for turn in ("turn left", "turn right"):
        _, info = environment.reset(options={"task_id": "GoToLocal/00012"})
        first = str(info["anchor_state"])
        anchors.append([str(environment.step(turn)[4]["anchor_state"]) for _ in range(4)][-1])
    assert anchors[0] == anchors[1]
    assert anchors[0] != first, "more is known now than at the start"


def test_a_primitive_episode_takes_minigrids_moves() -> None:
    environment = BabyAI(actions="primitive")
    _, info = environment.reset(options={"task_id": "GoToLocal/00012"})
    assert set(info["admissible_actions"]) == {"turn left", "turn right", "move forward"}
    assert [move.value for move in Move] == [0, 1, 2, 3, 4, 5]


def test_a_refused_action_costs_no_move_and_changes_nothing() -> None:
    environment = BabyAI()
    text, before = environment.reset(options={"task_id": "GoToLocal/00012"})
    for _ in range(100):  # more than MiniGrid's limit of 64
        said, reward, terminated, truncated, info = environment.step("go to pink unicorn 1")
        assert said == f"{text}\nThat is not possible."
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info["anchor_state"] == before["anchor_state"]


def test_minigrids_limit_on_moves_truncates() -> None:
    environment = BabyAI()
    environment.reset(options={"task_id": "GoToLocal/00012"})
    results = [environment.step("turn left") for _ in range(64)]
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in results[:-1])
    _, _, terminated, truncated, info = results[-1]
    assert (terminated, truncated) == (False, True)
    assert info["admissible_actions"] == []
    with pytest.raises(ResetNeeded):
        environment.step("turn left")


def test_a_mission_that_ends_with_the_last_allowed_move_is_not_cut_off_too() -> None:
    environment = BabyAI(levels=["GoToLocalS5N2"], actions="primitive")
    task = environment.tasks(Split.TRAIN)[0]
    solution = play(environment, task, expert_policy, horizon=60)
    moves = [
        Move[action.removeprefix("move ").removeprefix("turn ").upper()]
        for action in solution.actions
    ]
    world = World("GoToLocalS5N2")
    world.reset(task.seed)
    world.minigrid.max_steps = len(moves)
    outcome = world.carry_out(moves)
    assert (outcome.terminated, outcome.truncated) == (True, False)


def test_the_time_penalty_is_minigrids() -> None:
    environment = BabyAI(time_penalty=True, actions="primitive")
    environment.reset(options={"task_id": "GoToLocal/00012"})
    reward, num_steps, terminated = 0.0, 0, False
    while not terminated:
        _, reward, terminated, _, _ = environment.step(str(environment.expert_action()))
        num_steps += 1
    assert reward == pytest.approx(1 - 0.9 * num_steps / 64)


def test_levels_take_turns_in_a_list() -> None:
    environment = BabyAI(levels=["GoToObj", "OpenDoor"])
    listed = environment.tasks(Split.VALIDATION, 5)
    levels = [task.task_id.split("/")[0] for task in listed]
    assert levels == ["GoToObj", "OpenDoor", "GoToObj", "OpenDoor", "GoToObj"]


@pytest.mark.slow
@pytest.mark.parametrize("actions", ["high_level", "primitive"])
@pytest.mark.parametrize(
    "level",
    ["GoTo", "GoToSeq", "KeyCorridorS3R2", "OpenDoor", "PickupLoc", "PutNextLocal", "UnlockLocal"],
)
def test_the_expert_solves_levels_of_every_kind(level: str, actions: str) -> None:
    environment = BabyAI(levels=[level], actions=actions)
    for task in environment.tasks(Split.TEST, 3):
        assert play(environment, task, expert_policy, horizon=300).success, task.task_id


@pytest.mark.parametrize("task_id", ["", "GoToLocal", "GoToMars/00001", "GoToLocal/one"])
def test_an_unknown_task_is_named(task_id: str) -> None:
    with pytest.raises(ValueError, match="no BabyAI task is called"):
        BabyAI().reset(options={"task_id": task_id})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ["GoToMars"]}, "no BabyAI level is called 'GoToMars'"),
        ({"levels": []}, "at least one BabyAI level"),
        ({"actions": "telepathy"}, "high_level or primitive, got 'telepathy'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gymnasium.make("longhaul/BabyAI-v0", **options)
