"""Levels by gym-sokoban's generator are as hard as those of verl-agent's own code."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from golden.make_sokoban_levels import FILE, shortest_solution
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.sokoban.gym_sokoban import make_start
from longhaul_envs.sokoban.tasks import SokobanOptions, start_of, tasks

NUM_LEVELS = 500
OPTIONS = SokobanOptions(generator="gym-sokoban", min_pushes=1)


def grouped(moves: Counter[int]) -> list[int]:
    """1 to 7 moves, and more."""
    return [*(moves[n] for n in range(1, 8)), sum(moves[n] for n in moves if n > 7)]


def test_shortest_solutions_are_distributed_as_of_the_authors_code() -> None:
    """2,000 rooms that their code made, and 500 of ours: chi squared at 7 degrees of freedom."""
    recorded = json.loads(Path(FILE).read_text("utf-8"))["moves"]
    theirs = grouped(Counter({int(moves): n for moves, n in recorded.items()}))
    starts = [make_start(6, 1, seed) for seed in range(NUM_LEVELS)]
    ours = grouped(Counter(shortest_solution(*start) for start in starts if start is not None))

    total = sum(ours) + sum(theirs)
    chi_squared = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        for found, size in ((mine, sum(ours)), (other, sum(theirs))):
            expected = (mine + other) * size / total
            chi_squared += (found - expected) ** 2 / expected
    assert chi_squared < 18.5  # 1 in 100


def test_a_start_has_every_box_off_its_target_and_follows_from_its_seed() -> None:
    for seed in range(50):
        made = make_start(7, 2, seed)
        if made is None:
            continue
        board, start = made
        assert len(start.boxes) == 2
        assert not start.boxes & board.targets
        assert {start.player, *start.boxes} <= board.floor
        assert made == make_start(7, 2, seed)


def test_its_tasks_can_be_played_under_any_options_and_share_nothing_between_splits() -> None:
    listed = {split: tasks(split, OPTIONS, 60) for split in Split}
    starts = {
        split: {start_of(task.task_id, SokobanOptions()) for task in those}
        for split, those in listed.items()
    }
    assert listed[Split.TRAIN][0].task_id.startswith("gym-sokoban/6x6-1/")
    assert not starts[Split.TRAIN] & starts[Split.TEST]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": "pushes"}, "generator must be pulls or gym-sokoban"),
        ({"generator": "gym-sokoban", "boxoban": "hard"}, "has no effect with boxoban"),
    ],
)
def test_a_generator_that_is_none_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SokobanOptions(**options)
