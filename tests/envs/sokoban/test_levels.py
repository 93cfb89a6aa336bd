"""Generated levels: solvable, reproducible, made in bounded time."""

import time

import pytest

from longhaul_envs.sokoban.levels import make_level, make_start


@pytest.mark.parametrize(("size", "num_boxes"), [(5, 1), (6, 1), (6, 2), (7, 3), (10, 4)])
def test_every_level_carries_a_proof(size: int, num_boxes: int) -> None:
    levels = [level for seed in range(8) if (level := make_level(size, num_boxes, seed))]
    assert len(levels) >= 4
    for level in levels:
        assert len(level.start.boxes) == len(level.board.targets) == num_boxes
        assert not level.start.boxes & level.board.targets
        position = level.start
        for move in level.solution:
            assert not level.board.is_solved(position), "a solution ends when the level is solved"
            position = level.board.move(position, move)
        assert level.board.is_solved(position)


def test_a_seed_gives_the_same_level_on_every_machine() -> None:
    """Written down once; a change here changes every stored Sokoban task."""
    made = make_start(6, 1, 12)
    assert made is not None
    assert made[0].rows(made[1]) == [
        "######",
        "#____#",
        "#_$_.#",
        "#___@#",
        "#__#_#",
        "######",
    ]


def test_6_by_6_levels_take_less_than_50_ms_each() -> None:
    make_level.cache_clear()
    make_start.cache_clear()
    started = time.process_time()
    for seed in range(100):
        make_level(6, 2, seed)
    assert (time.process_time() - started) / 100 < 0.05
