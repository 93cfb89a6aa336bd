"""Games made of real rooms: never won at the start, always winnable, divided by room."""

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.alfworld.rooms import FAMILIES, Start, make_start, room, room_numbers
from longhaul_envs.alfworld.tasks import ALFWorldOptions, game_of, source, tasks

pytestmark = pytest.mark.usefixtures("installed_alfworld")

NUM_SEEDS = 600


def starts() -> list[Start]:
    return [make_start(FAMILIES, seed) for seed in range(NUM_SEEDS)]


def test_rooms_are_the_floor_plans_of_the_wheel() -> None:
    kitchen = room(1)

    assert len(room_numbers()) == 120
    assert sorted({kind for _, kind in kitchen.receptacles}) == [
        *("Cabinet", "CoffeeMachine", "CounterTop", "Drawer", "Fridge", "GarbageCan"),
        *("Microwave", "Shelf", "SinkBasin", "StoveBurner", "Toaster"),
    ]
    assert "Egg" in kitchen.objects
    assert room(301).lamps == ("DeskLamp",)


def test_no_game_begins_won() -> None:
    for start in starts():
        kinds = dict(start.room.receptacles)
        if start.family != "look_at_obj_in_light":
            lies_in = {kinds[home] for _, kind, home in start.places if kind == start.target}
            assert start.destination not in lies_in, start.content


def test_every_thing_lies_where_it_fits_and_the_witness_takes_it_from_there() -> None:
    for start in starts():
        homes = {item: home for item, _, home in start.places}
        visits = start.solution()
        taken = [(item, place) for action, item, place in visits if action == "take"]
        assert taken, start.content
        assert all(homes[item] == place for item, place in taken)
        assert len({item for item, _ in taken}) == (2 if "two" in start.family else 1)


def test_test_games_are_of_rooms_in_which_nobody_trains() -> None:
    options = ALFWorldOptions(num_train_games=200, num_eval_games=60)
    rooms = {
        split: {
            make_start(FAMILIES, int(task.task_id.split("/")[-1])).room.number
            for task in tasks(split, options)
        }
        for split in Split
    }

    assert rooms[Split.TEST]
    assert not rooms[Split.TEST] & (rooms[Split.TRAIN] | rooms[Split.VALIDATION])


def test_every_family_is_in_every_split() -> None:
    for split in Split:
        listed = tasks(split, ALFWorldOptions(num_train_games=60, num_eval_games=60))
        assert {game_of(task.task_id, "current").family for task in listed} == set(FAMILIES)


def test_task_types_choose_the_families() -> None:
    listed = tasks(Split.TRAIN, ALFWorldOptions(task_types=(4, 1), num_train_games=20))

    assert {game_of(task.task_id, "current").family for task in listed} == {
        "pick_and_place_simple",
        "pick_heat_then_place_in_recep",
    }
    assert listed[0].task_id.startswith("generated/14/")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"games": "all"}, "generated or released"),
        ({"task_types": [0]}, "from 1 to 6"),
        ({"num_train_games": 0}, "at least 1"),
        ({"wording": "old"}, "current or released"),
        ({"wording": "released"}, "generated games have none"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(options)


@pytest.mark.parametrize(
    "task_id", ["generated/7/00001", "generated/1/x", "train", "train/../x", "valid_seen/a/b"]
)
def test_ids_of_no_task_are_refused(
    task_id: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("alfworld")
    (root / "json_2.1.1" / "train").mkdir(parents=True)
    monkeypatch.setenv("ALFWORLD_DATA", str(root))

    with pytest.raises(ValueError, match=r"no (released )?ALFWorld (task|game)"):
        game_of(task_id, "current")
