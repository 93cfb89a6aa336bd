"""Sokoban's rules on boards drawn by hand."""

from random import Random

import pytest

from longhaul_envs.sokoban.board import Board, Position, symmetric_forms

__all__ = ["parse"]


def parse(*rows: str) -> tuple[Board, Position]:
    """The inverse of `Board.rows`."""
    cells = dict(enumerate("".join(rows)))
    board = Board(
        len(rows),
        frozenset(cell for cell, symbol in cells.items() if symbol != "#"),
        frozenset(cell for cell, symbol in cells.items() if symbol in ".*+"),
    )
    player = next(cell for cell, symbol in cells.items() if symbol in "@+")
    boxes = frozenset(cell for cell, symbol in cells.items() if symbol in "$*")
    return board, Position(player, boxes)


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ("#@_.#", "right", "#_@.#"),
        ("#@$.#", "right", "#_@*#"),
        ("#@*_#", "right", "#_+$#"),
        ("#@$##", "right", "#@$##"),
        ("@$$_#", "right", "@$$_#"),
        ("#@_.#", "left", "#@_.#"),
        ("#@_.#", "up", "#@_.#"),
        ("#_@$#", "left", "#@_$#"),
    ],
)
def test_a_move_walks_pushes_or_is_blocked(before: str, action: str, after: str) -> None:
    wall = "#" * 5
    board, position = parse(wall, before, wall, wall, wall)

    moved = board.move(position, action)

    assert board.rows(moved)[1] == after
    assert (action in board.effective_actions(position)) == (before != after)


def test_it_is_solved_when_every_box_is_on_a_target() -> None:
    board, position = parse("#####", "#*.$#", "#@__#", "#___#", "#####")
    assert not board.is_solved(position)
    board, position = parse("#####", "#*_*#", "#@__#", "#___#", "#####")
    assert board.is_solved(position)


def test_boxes_bound_the_region_of_the_player() -> None:
    board, position = parse("#####", "#@$_#", "#$__#", "#___#", "#####")
    assert list(board.reachable(position)) == [position.player]
    assert board.region(position) == 1 << position.player


def test_a_region_has_the_cells_that_a_walk_reaches() -> None:
    random = Random(0)
    sizes: set[int] = set()
    for _ in range(300):
        size = random.randrange(4, 11)
        inside = [row * size + c for row in range(1, size - 1) for c in range(1, size - 1)]
        floor = random.sample(inside, k=random.randrange(len(inside) // 2, len(inside)) + 1)
        boxes = frozenset(floor[1 : 1 + random.randrange(4)])
        board, position = Board(size, frozenset(floor), boxes), Position(floor[0], boxes)

        walked = set(board.reachable(position))

        assert board.region(position) == sum(1 << cell for cell in walked)
        sizes.add(len(walked))
    assert len(sizes) > 20


def test_turned_and_mirrored_boards_are_one() -> None:
    rows = ["#####", "#@$.#", "##__#", "#___#", "#####"]
    mirrored = [row[::-1] for row in rows]
    turned = ["".join(column) for column in zip(*rows[::-1], strict=True)]

    forms = set(symmetric_forms(rows))

    assert len(forms) == 8
    assert "\n".join(rows) in forms
    assert set(symmetric_forms(mirrored)) == set(symmetric_forms(turned)) == forms
