"""Tasks of programs: files, modules, environments."""

import hashlib
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split, Task
from longhaul_envs.sources import environment_source
from longhaul_trainer.gateway.task_data import task_data
from longhaul_trainer.play.programs.tasks import EnvironmentTasks, task_source

ROWS = [{"question": f"{number} + {number}?", "answer": 2 * number} for number in range(200)]


def written(folder: Path, rows: Sequence[object]) -> str:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def all_tasks(source: str) -> dict[Split, list[Task]]:
    listed = task_source(source)
    return {split: list(listed.tasks(split)) for split in Split}


def task_of(row: Mapping[str, object]) -> str:
    return str(row["question"])


def split_of(row: Mapping[str, object]) -> Split:
    """By the definition: the end of the content's hash, as a share of all of them."""
    content = json.dumps(row, sort_keys=True, separators=(",", ":"))
    share = int(hashlib.sha256(content.encode()).hexdigest()[-16:], 16) / 2**64
    return Split.TRAIN if share < 0.8 else Split.VALIDATION if share < 0.9 else Split.TEST


def test_a_task_gives_a_program_the_object_that_was_read(tmp_path: Path) -> None:
    row = {"id": "a", "split": "train", "goal": "add\n  up", "data": {"n": [1, None]}}
    (task,) = task_source(written(tmp_path, [row])).tasks(Split.TRAIN)

    assert task_data(task) == row
    assert (task.task_id, task.goal, task.environment) == ("a", "add up", "tasks.jsonl")


def test_tasks_without_a_split_are_shared_out_by_content_and_stay_where_they_are(
    tmp_path: Path,
) -> None:
    whole = all_tasks(written(tmp_path, ROWS))
    sizes = {split: len(tasks) for split, tasks in whole.items()}
    assert sum(sizes.values()) == 200
    assert 140 <= sizes[Split.TRAIN] <= 180
    assert sizes[Split.VALIDATION] >= 8
    assert sizes[Split.TEST] >= 8

    for split, tasks in whole.items():
        assert {task_of(row) for row in ROWS if split_of(row) is split} == {
            task_of(task_data(task)) for task in tasks
        }
    half = task_source(written(tmp_path, ROWS[::-2]))
    for split in Split:
        assert set(half.tasks(split)) <= set(whole[split])


@pytest.mark.parametrize("num_tasks", [3, 4, 5, 10, 20, 30])
def test_three_tasks_or_more_leave_no_split_empty(tmp_path: Path, num_tasks: int) -> None:
    for draw in range(60):
        rows = [{"draw": draw, "q": number} for number in range(num_tasks)]

        tasks = all_tasks(written(tmp_path, rows))

        assert all(tasks.values())
        num_empty = len(set(Split) - {split_of(row) for row in rows})
        lent = [
            task
            for split, of_split in tasks.items()
            for task in of_split
            if split_of(task_data(task)) is not split
        ]
        assert len(lent) == num_empty


def test_a_task_moves_only_between_splits_of_which_one_has_none_of_its_own(
    tmp_path: Path,
) -> None:
    few: dict[str, Split] = {}
    empty = set(Split)
    for number in range(3, len(ROWS) + 1):
        tasks = all_tasks(written(tmp_path, ROWS[:number]))
        now = {task.task_id: split for split, ones in tasks.items() for task in ones}
        moved = {task_id for task_id, split in few.items() if now[task_id] is not split}
        assert not moved or empty
        empty = set(Split) - {split_of(row) for row in ROWS[:number]}
        few = now
    assert not empty


def test_people_are_shown_a_title_or_the_goal_or_all_that_there_is(tmp_path: Path) -> None:
    rows = [
        {"split": "train", "title": "Sums", "goal": "add up", "n": 1},
        {"split": "train", "goal": "add up", "n": 2},
        {"split": "train", "goal": {"of": ["a", "b"], "for": "hä"}, "n": 3},
        {"split": "train", "n": 4},
    ]
    tasks = task_source(written(tmp_path, rows)).tasks(Split.TRAIN)

    assert [task.goal for task in tasks] == [
        "Sums",
        "add up",
        '{"for": "hä", "of": ["a", "b"]}',
        '{"n": 4}',
    ]
    assert [task_data(task) for task in tasks] == rows


def test_a_split_without_tasks_is_refused_with_what_helps(tmp_path: Path) -> None:
    listed = task_source(written(tmp_path, [{"q": 1, "split": "train"}]))

    for split, remedy in (
        (Split.VALIDATION, r"validation\.num_tasks = 0"),
        (Split.TEST, r"validation\.test_num_tasks = 0"),
    ):
        with pytest.raises(ConfigError, match=rf'Give tasks "split": "{split}".*{remedy}'):
            listed.tasks(split)


def test_the_shares_and_ids_of_a_content_are_the_same_on_every_machine(tmp_path: Path) -> None:
    tasks = all_tasks(written(tmp_path, ROWS))
    (task,) = (one for of_split in tasks.values() for one in of_split if '"4 + 4?"' in one.data)

    # SHA-256 of {"answer":8,"question":"4 + 4?"}
    assert (task.task_id, task.seed, task.split) == (
        "8f87d17dff7cdc4c",
        1889518120317372,
        Split.TRAIN,
    )


def test_parquet_has_the_same_tasks_as_lines_of_json(tmp_path: Path) -> None:
    arrow: ModuleType = importlib.import_module("pyarrow")  # untyped
    parquet: ModuleType = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "tasks.parquet")

    of_parquet = task_source(str(tmp_path / "tasks.parquet"), name="sums")
    of_lines = task_source(written(tmp_path, ROWS), name="sums")

    for split in Split:
        assert of_parquet.tasks(split) == of_lines.tasks(split)


def test_a_module_gives_an_iterable_or_a_function_of_the_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "sums_of_mine.py").write_text(
        f"LISTED = {ROWS!r}\n"
        "def of_split(split):\n"
        "    return ({'sum': f'{split} {n}'} for n in range(3 if split != 'test' else 0))\n"
        "def broken(split):\n    yield {'sum': 1}\n    raise OSError('no disk')\n"
        "def wrong(split):\n    return [{'sum': split, 'split': 'train'}]\n"
        "NUMBER = 5\n",
        encoding="utf-8",
    )

    listed = task_source("sums_of_mine:LISTED", name="sums")
    of_lines = task_source(written(tmp_path, ROWS), name="sums")
    assert listed.tasks(Split.TEST) == of_lines.tasks(Split.TEST)

    of_split = task_source("sums_of_mine:of_split")
    assert [task_data(task)["sum"] for task in of_split.tasks(Split.VALIDATION)] == [
        "validation 0",
        "validation 1",
        "validation 2",
    ]
    with pytest.raises(ConfigError, match=r"has no test task; there are 3 train, 3 validation"):
        of_split.tasks(Split.TEST)
    for name, said in [
        ("broken", "OSError: no disk"),
        ("wrong", r"wrong\('validation'\), task 1: is of split 'train'"),
        ("NUMBER", "must be an iterable of objects, got int"),
        ("missing", "has no missing"),
    ]:
        with pytest.raises(ConfigError, match=said):
            task_source(f"sums_of_mine:{name}")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{}", "{"], r"tasks\.jsonl, line 2: is no JSON"),
        (["", "{}", "[1]"], "line 3: must be a JSON object, got list"),
        (['{"a": 1}', '{"a": "\xff"}'], "line 2: is no JSON: .*utf-8"),
        (['{"a": NaN}'], "line 1: is no JSON"),
        (['{"id": 1, "a": 1}', '{"id": "1", "a": 2}'], "line 2: id '1' is that of .*line 1 too"),
        (['{"id": true}'], "line 1: id must be text or a whole number, got True"),
        (['{"split": "dev"}'], "split must be one of train, validation, test, got 'dev'"),
        (['{"split": "train"}', '{"a": 1}'], "line 1 names its split, and .*line 2 does not"),
        (
            ['{"id": "x", "split": "train", "a": 1}', '{"a": 1, "split": "test", "id": "y"}'],
            r"task 'y' \(test\) has the same content as task 'x' \(train\) of .*line 1",
        ),
        ([""], "has no task"),
    ],
)
def test_what_is_wrong_with_a_file_is_refused_with_its_line(
    tmp_path: Path, lines: Sequence[str], said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes("\n".join(lines).encode("latin-1"))

    with pytest.raises(ConfigError, match=said):
        task_source(str(path))


@pytest.mark.parametrize("name", ["tasks.csv", "nowhere.jsonl", "nowhere.parquet", "no_module:x"])
def test_a_source_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        task_source(name)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").write_bytes(b"no")

    with pytest.raises(ConfigError, match=r"tasks\.parquet"):
        task_source(str(tmp_path / "tasks.parquet"))


@pytest.mark.parametrize("shares", [{Split.TRAIN: 0.5}, {Split.TRAIN: 1.5, Split.VALIDATION: -0.5}])
def test_shares_that_are_no_shares_are_refused(
    tmp_path: Path, shares: Mapping[Split, float]
) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        task_source(written(tmp_path, ROWS), shares=shares)


def test_a_program_gets_what_builds_and_resets_an_environment() -> None:
    spec = GymEnvironmentSpec(environment_id="longhaul/TextCraft-v0", options={})
    own = environment_source(spec)
    (task, *_) = EnvironmentTasks(own, options={"a": 1}).tasks(Split.TEST)
    (same, *_) = own.tasks(Split.TEST)

    assert task_data(task) == {
        "id": same.task_id,
        "environment": "longhaul/TextCraft-v0",
        "version": same.version,
        "split": "test",
        "seed": same.seed,
        "goal": same.goal,
        "options": {"a": 1},
    }
    assert task.key == same.key
    assert "options" not in task_data(same)
