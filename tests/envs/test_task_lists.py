"""Splits by content: disjoint, stable, of about the promised size."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.task_lists import (
    HELD_OUT_SHARE,
    procedural_tasks,
    rules_version,
    shared_out,
    split_of,
    stable_seed,
    tasks_from_rows,
)


def task(seed: int, split: Split = Split.TRAIN) -> Task:
    return Task(
        environment="tests/None-v0",
        version="1",
        data_hash="",
        task_id=f"{seed}",
        seed=seed,
        split=split,
    )


def test_the_split_of_a_content_is_the_same_everywhere_and_always() -> None:
    """Worked out once and written down: a change here moves every task list there is."""
    assert [text for text in "abcdefgh" if split_of(text) is Split.TRAIN] == ["b", "c", "e", "h"]
    assert [text for text in "abcdefgh" if split_of(text) is Split.TEST] == ["a"]
    assert stable_seed("1/oak_planks/0") == 1144135422


def test_the_splits_have_their_shares() -> None:
    splits = [split_of(f"content {n}") for n in range(20_000)]
    for held_out in (Split.VALIDATION, Split.TEST):
        assert splits.count(held_out) / len(splits) == pytest.approx(HELD_OUT_SHARE, abs=0.01)


@given(st.sets(st.text(), min_size=3, max_size=60))
def test_what_is_shared_out_is_all_there_once_and_in_every_split(contents: set[str]) -> None:
    parts = shared_out(contents)

    assert sorted(text for part in parts.values() for text in part) == sorted(contents)
    assert all(parts[split] for split in Split)
    assert len(parts[Split.VALIDATION]) == len(parts[Split.TEST])


@given(st.permutations([f"goal {n}" for n in range(10)]))
def test_the_order_of_the_contents_does_not_matter(contents: list[str]) -> None:
    assert shared_out(contents) == shared_out(sorted(contents))


def test_two_contents_cannot_fill_three_splits() -> None:
    with pytest.raises(ConfigError, match="2 distinct tasks cannot fill 3 splits"):
        shared_out(["a", "b", "a"])


def test_a_content_met_twice_is_listed_once() -> None:
    found = procedural_tasks(
        Split.TRAIN, limit=5, content_of=lambda seed: f"world {seed // 2}", task_of=task
    )
    contents = [f"world {listed.seed // 2}" for listed in found]
    assert len(set(contents)) == len(contents) == 5
    assert all(split_of(content) is Split.TRAIN for content in contents)


def test_a_world_that_runs_out_of_content_ends_the_search() -> None:
    looked_at: list[int] = []

    def content_of(seed: int) -> str:
        looked_at.append(seed)
        return f"world {seed % 4}"

    found = procedural_tasks(Split.TRAIN, limit=100, content_of=content_of, task_of=task)

    assert {listed.seed % 4 for listed in found} == {1, 2, 3}  # world 0 is of another split
    assert len(found) == 3
    assert len(looked_at) < 1000


def test_rows_of_equal_content_stay_together() -> None:
    rows = {f"row {n}": f"question {n // 3}" for n in range(60)}
    listed = tasks_from_rows("tests/None-v0", rows)

    split_by_content: dict[str, set[Split]] = {}
    for split, tasks in listed.items():
        for one in tasks:
            assert one.split is split
            split_by_content.setdefault(rows[one.task_id], set()).add(split)
    assert all(len(splits) == 1 for splits in split_by_content.values())
    assert sum(len(tasks) for tasks in listed.values()) == 60


def test_a_changed_row_changes_the_data_hash() -> None:
    rows = {f"row {n}": f"question {n}" for n in range(9)}
    before = tasks_from_rows("tests/None-v0", rows)[Split.TRAIN][0].data_hash
    after = tasks_from_rows("tests/None-v0", {**rows, "row 0": "other"})[Split.TRAIN][0].data_hash
    assert before != after


@dataclass(frozen=True)
class Options:
    rule: bool = True
    size: int = 6


def test_a_version_names_the_rules_that_are_not_at_their_defaults() -> None:
    assert rules_version("1", Options(size=9), rules=["rule"]) == "1"
    assert rules_version("1", Options(rule=False, size=9), rules=["rule"]) == "1+rule=False"
