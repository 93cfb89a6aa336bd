"""Levels of the Boxoban data set, in tiny files of its exact format."""

import os
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split
from longhaul_envs import data
from longhaul_envs.check import check_environment
from longhaul_envs.sokoban import boxoban
from longhaul_envs.sokoban.board import Position
from longhaul_envs.sokoban.environment import Sokoban
from longhaul_envs.sources import environment_source


def level(player: int, box: int = 35, target: int = 44) -> str:
    """A room of 10 by 10 with one box, written as the authors write it."""
    cells = ["#" if n < 10 or n >= 90 or n % 10 in (0, 9) else " " for n in range(100)]
    cells[player], cells[box], cells[target] = "@", "$", "."
    return "\n".join("".join(cells[row : row + 10]) for row in range(0, 100, 10))


def file_of(*levels: str) -> str:
    return "".join(f"; {n}\n{text}\n\n" for n, text in enumerate(levels))


def mirrored(text: str) -> str:
    return "\n".join(line[::-1] for line in text.splitlines())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sets with the authors' folders; some levels stand in two of them."""
    contents = {
        "unfiltered/train/000.txt": file_of(level(11), mirrored(level(21)), level(12)),
        "unfiltered/train/001.txt": file_of(level(13), level(22)),
        "unfiltered/valid/000.txt": file_of(level(21), level(23), level(22)),
        "unfiltered/test/000.txt": file_of(level(22), level(24)),
        "medium/train/000.txt": file_of(level(31)),
        "medium/valid/000.txt": file_of(*(level(player) for player in range(11, 19))),
        "hard/000.txt": file_of(*(level(p, t, 55) for p in range(11, 19) for t in (33, 34, 43))),
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="ascii")
    return tmp_path


def options(root: Path, level_set: str = "unfiltered") -> dict[str, object]:
    return {"boxoban": level_set, "boxoban_folder": str(root)}


def ids(root: Path, level_set: str) -> dict[Split, list[str]]:
    spec = GymEnvironmentSpec(
        environment_id="longhaul/Sokoban-v0", options=options(root, level_set)
    )
    source = environment_source(spec)
    return {split: [task.task_id for task in source.tasks(split)] for split in Split}


def test_a_file_is_read_as_its_authors_wrote_it() -> None:
    (board, start), (_, other) = boxoban.parse_levels(file_of(level(11), level(12)), source="x")

    assert board.size == 10
    assert board.targets == {44}
    assert start == Position(11, frozenset({35}))
    assert other.player == 12
    assert len(board.floor) == 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no level"),
        (file_of(level(11)[:-1]), "level 0 of x is no square"),
        (file_of(level(11), level(11).replace("@", "?")), "level 1 of x is no square"),
        (file_of(level(11).replace("@", " ")), "has 0 players, 1 boxes and 1 targets"),
        (file_of(level(11).replace(".", " ")), "has 1 players, 1 boxes and 0 targets"),
        (file_of(" " + level(11)[1:]), "a gap in the wall"),
    ],
)
def test_what_is_no_level_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        boxoban.parse_levels(text, source="x")


def test_splits_are_the_authors_folders_without_what_stands_in_two(root: Path) -> None:
    found = ids(root, "unfiltered")

    assert found[Split.TEST] == [f"boxoban/unfiltered/test/000/{n}" for n in (0, 1)]
    assert found[Split.VALIDATION] == [f"boxoban/unfiltered/valid/000/{n}" for n in (0, 1)]
    assert found[Split.TRAIN] == [
        *(f"boxoban/unfiltered/train/000/{n}" for n in (0, 2)),
        "boxoban/unfiltered/train/001/0",
    ]


@pytest.mark.parametrize("level_set", ["medium", "hard"])
def test_a_set_without_a_test_folder_is_divided_by_content(root: Path, level_set: str) -> None:
    found = ids(root, level_set)
    held_out = {*found[Split.VALIDATION], *found[Split.TEST]}
    num_held_out = len(found[Split.VALIDATION]) + len(found[Split.TEST])

    assert len(held_out) == num_held_out
    assert all(found.values())
    assert not held_out & set(found[Split.TRAIN])
    if level_set == "medium":
        assert all("/valid/" in name for name in held_out)
        assert found[Split.TRAIN] == ["boxoban/medium/train/000/0"]


@pytest.mark.parametrize("level_set", ["unfiltered", "hard"])
def test_the_contract_holds_on_its_levels(root: Path, level_set: str) -> None:
    found = check_environment("longhaul/Sokoban-v0", options=options(root, level_set), num_tasks=2)
    assert found == []


def test_an_environment_draws_from_the_training_levels_without_a_task(root: Path) -> None:
    environment = Sokoban(boxoban="unfiltered", boxoban_folder=str(root))
    starts = {environment.reset(seed=seed)[1]["anchor_state"] for seed in range(20)}
    listed = environment.tasks(Split.TRAIN)
    assert starts == {
        environment.reset(options={"task_id": task.task_id})[1]["anchor_state"] for task in listed
    }


def test_levels_that_are_not_there_are_named_with_the_way_to_get_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGHAUL_DATA", str(root / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere/boxoban/hard; `trainer data fetch boxoban`"):
        Sokoban(boxoban="hard").tasks(Split.TRAIN)
    with pytest.raises(ConfigError, match="has 3 levels, and no level '3'"):
        boxoban.level_at(root, "unfiltered/train/000/3")


@pytest.mark.parametrize("name", ["../000/0", "/etc/000/0", "unfiltered/../../000/0"])
def test_a_task_id_names_no_file_outside_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="lies outside the folder"):
        boxoban.level_at(tmp_path, name)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"boxoban": "easy"}, "boxoban must be one of unfiltered, medium, hard, got 'easy'"),
        ({"boxoban": "hard", "size": 7}, "size = 7 has no effect with boxoban = 'hard'"),
        ({"boxoban_levels": 5}, "boxoban_levels = 5 has no effect"),
        ({"boxoban": "hard", "boxoban_levels": 0}, "boxoban_levels must be at least 1, got 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    given: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        Sokoban(**given)  # pyright: ignore[reportArgumentType]


def test_fewer_levels_are_listed_if_asked(root: Path) -> None:
    environment = Sokoban(boxoban="unfiltered", boxoban_folder=str(root), boxoban_levels=1)
    assert [len(environment.tasks(split)) for split in Split] == [1, 1, 1]


def test_the_released_levels_are_read_and_some_are_solved() -> None:
    files = os.environ.get("LONGHAUL_TEST_DATA")
    if not files:
        pytest.skip("LONGHAUL_TEST_DATA names no folder with boxoban/")
    environment = Sokoban(boxoban="unfiltered", boxoban_folder=str(Path(files) / "boxoban"))
    assert len(environment.tasks(Split.TEST)) == 1000
    assert data.folder("boxoban").name == "boxoban"
    environment.reset(options={"task_id": "boxoban/unfiltered/test/000/0"})
    assert environment.expert_action() is not None
