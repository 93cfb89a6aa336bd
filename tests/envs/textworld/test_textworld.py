"""TextWorld: games built once, the same everywhere, and won by their gold path."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.types import Split, Task
from longhaul_envs.play import act, expert_policy, play, start
from longhaul_envs.textworld.environment import TextWorld
from longhaul_envs.textworld.games import built, game_folder, settings_text
from longhaul_envs.textworld.tasks import TextWorldOptions, parse_task_id, source, tasks

pytestmark = pytest.mark.usefixtures("installed_textworld")

SMALL = {
    "cooking": "cook,cut,go=1,open,recipe=1,split=test,take=1",
    "simple": "goal=detailed,rewards=dense",
    "coin": "level=1",
    "treasure": "level=1",
    "custom": "nb_objects=3,quest_length=2,theme=basic,world_size=2",
}
"""A quick game of each family."""


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty data folder for the tests of this module."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("LONGHAUL_DATA", str(folder))
        yield folder


def task_of(family: str, seed: int = 0) -> Task:
    return Task(
        environment="longhaul/TextWorld-v0",
        version="1",
        data_hash="",
        task_id=f"{family}/{SMALL[family]}/{seed}",
        seed=0,
        split=Split.TEST,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize("family", SMALL)
def test_the_gold_path_wins_a_game_of_each_family(family: str) -> None:
    environment = TextWorld()  # any instance plays any task
    episode = play(environment, task_of(family), expert_policy, horizon=50)
    environment.close()

    assert episode.success
    assert episode.results[-1].terminated
    assert episode.episode_return == pytest.approx(1)
    assert "RESTART" not in episode.results[-1].observation.text
    first = episode.first_observation
    assert first.text.startswith("Goal: ")
    assert first.admissible_actions is not None
    assert episode.actions[0] in first.admissible_actions


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_a_thing_is_taken_though_its_place_has_a_name_that_is_part_of_another() -> None:
    """The room has a `locker` and a `type 0 locker`, and the game's parser asks which is meant."""
    environment = TextWorld()
    words = "nb_objects=10,quest_length=5,theme=house,world_size=5"
    task = replace(task_of("custom"), task_id=f"custom/{words}/0")
    episode = play(environment, task, expert_policy, horizon=10)
    environment.close()

    assert episode.actions[3] == "take type K latchkey from locker"
    seen = episode.results[3].observation.text
    assert seen.endswith("\nYou take the type K latchkey from the locker.")
    assert "-= Cellar =-" not in seen, "the interpreter's bar is no observation"
    assert episode.success


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_looking_leaves_the_anchor_and_acting_changes_it() -> None:
    environment = TextWorld()
    first = start(environment, task_of("cooking"))
    looked = [act(environment, action) for action in ("LOOK", "inventory", "unheard of")]
    acted = act(environment, environment.expert_action() or "")
    environment.close()

    assert {result.observation.anchor for result in looked} == {first.anchor}
    assert [result.action_accepted for result in looked] == [True, True, False]
    assert acted.observation.anchor != first.anchor


def build_program(data: Path, hash_seed: str) -> subprocess.Popen[str]:
    family, settings, seed = parse_task_id(task_of("treasure", 3).task_id)
    program = (
        "import json, sys\n"
        "from longhaul_envs.textworld.games import built\n"
        f"print(built({family!r}, {dict(settings)!r}, [{seed}])[0])\n"
    )
    environment = {"LONGHAUL_DATA": str(data), "PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=data.parent,
    )


@pytest.mark.slow
def test_two_that_build_a_game_at_once_find_it_whole_and_anywhere_it_is_the_same(
    tmp_path: Path,
) -> None:
    together = [build_program(tmp_path / "shared", seed) for seed in ("1", "2")]
    apart = build_program(tmp_path / "apart", "3")
    contents = {process.communicate()[0] for process in (*together, apart)}

    assert len(contents) == 1
    assert len(contents.pop().strip()) == 32
    left = {path.name for path in (tmp_path / "shared").rglob("level=1/*")}
    assert left == {"3"}, "what was built and not needed is still there"
    assert {path.name for path in tmp_path.iterdir()} == {"shared", "apart"}, "the compiler's notes"
    games = [next((tmp_path / name).rglob("game.json")) for name in ("shared", "apart")]
    assert json.loads(games[0].read_text("utf-8")) == json.loads(games[1].read_text("utf-8"))


@pytest.mark.slow
def test_a_generator_that_fails_says_what_it_was_asked(data_folder: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"treasure level=999, seeds \[0\]"):
        built("treasure", {"level": 999}, [0])
    folder = game_folder("treasure", {"level": 999}, 0)
    assert folder.is_relative_to(data_folder)
    assert list(folder.parent.iterdir()) == []


@pytest.mark.slow
def test_games_are_divided_by_content_listed_without_being_built_again_and_leave_nothing_at_home(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    options = TextWorldOptions(family="treasure", level=1, num_train_games=2, num_eval_games=1)
    listed = {split: tasks(split, options) for split in Split}
    contents: dict[str | None, Split] = {}
    for split, of_split in listed.items():
        for task in of_split:
            family, settings, seed = parse_task_id(task.task_id)
            (content,) = built(family, settings, [seed])
            assert contents.setdefault(content, split) is split
            assert game_folder(family, settings, seed).is_relative_to(data_folder)

    assert list(tmp_path.iterdir()) == []
    assert [len(listed[split]) for split in Split] == [2, 1, 1]
    assert len(contents) == 4


def test_a_cooking_games_split_is_one_of_its_settings() -> None:
    options = TextWorldOptions(num_eval_games=2)

    assert [task.task_id for task in tasks(Split.VALIDATION, options)] == [
        "cooking/cook,cut,go=6,open,recipe=1,split=valid,take=1/0",
        "cooking/cook,cut,go=6,open,recipe=1,split=valid,take=1/1",
    ]


@pytest.mark.parametrize("family", SMALL)
def test_an_id_names_its_settings_completely(family: str) -> None:
    parsed, settings, seed = parse_task_id(task_of(family, 12).task_id)

    assert (parsed, settings_text(settings), seed) == (family, SMALL[family], 12)


@pytest.mark.parametrize(
    "task_id",
    [
        "coin",
        "coin/level=0/1",
        "coin/level=1/x",
        "coin/level=01/1",
        "coin/level=1,extra/1",
        "coin/recipe=1/1",
        "chess/level=1/1",
        "custom/nb_objects=3,quest_length=2,theme=../etc,world_size=2/1",
    ],
)
def test_ids_of_no_task_are_refused(task_id: str) -> None:
    with pytest.raises(ValueError, match="no TextWorld task"):
        parse_task_id(task_id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "chess"}, "family must be one of"),
        ({"family": "coin", "recipe": 2}, "recipe is an option of the family cooking, not of coin"),
        ({"take": 2}, "take must be from 0 to 1"),
        ({"go": 2}, "go must be one of 1, 6, 9, 12"),
        ({"family": "treasure", "level": 31}, "level must be from 1 to 30"),
        ({"num_eval_games": 0}, "at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(options)
