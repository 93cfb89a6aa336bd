"""The room as a picture: what an image agent sees, and what `render` returns."""

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from longhaul_core.gym.convert import to_observation
from longhaul_core.types import Split
from longhaul_envs.sokoban.board import CELL_PIXELS, Board, Position
from longhaul_envs.sokoban.environment import Sokoban
from longhaul_envs.sokoban.picture import picture_of

FLOOR = frozenset({6, 7, 8, 11, 12, 13, 16, 17, 18})
BOARD = Board(5, FLOOR, frozenset({6, 8, 12}))


def cell_of(position: Position, cell: int) -> bytes:
    row, column = divmod(cell, 5)
    rows = slice(row * CELL_PIXELS, (row + 1) * CELL_PIXELS)
    columns = slice(column * CELL_PIXELS, (column + 1) * CELL_PIXELS)
    return picture_of(BOARD, position)[rows, columns].tobytes()


def test_each_of_the_seven_kinds_of_cell_has_its_own_look() -> None:
    position = Position(17, frozenset({6, 7, 13}))
    kinds = {
        "wall": cell_of(position, 0),
        "box on target": cell_of(position, 6),
        "box": cell_of(position, 7),
        "target": cell_of(position, 8),
        "player": cell_of(position, 17),
        "floor": cell_of(position, 18),
        "player on target": cell_of(Position(12, position.boxes), 12),
    }

    assert len(set(kinds.values())) == len(kinds)
    assert kinds["box"] == cell_of(position, 13)
    assert kinds["floor"] == cell_of(position, 11)
    assert kinds["wall"] == cell_of(position, 24)


def test_a_picture_of_an_observation_is_that_of_the_state_and_the_text_tells_no_place() -> None:
    seen, shown = Sokoban(), Sokoban(observation="image")
    for task in seen.tasks(Split.TEST)[:4]:
        options = {"task_id": task.task_id}
        _, info = seen.reset(options=options)
        observation: Any
        observation, image_info = shown.reset(options=options)
        texts: set[str] = set()
        for _ in range(5):
            assert info == image_info
            assert observation in shown.observation_space
            pixels = np.asarray(Image.open(BytesIO(observation["picture"])))
            assert np.array_equal(pixels, seen.render())
            texts.add(observation["text"])
            action = info["admissible_actions"][0]
            _, _, over, _, info = seen.step(action)
            observation, _, _, _, image_info = shown.step(action)
            if over:
                break
        assert texts == {"Goal: push every box onto a target\nThe picture shows the room."}


def test_agents_and_the_store_get_the_picture_as_png() -> None:
    environment = Sokoban(observation="image")
    observation = to_observation(*environment.reset(options={"task_id": "6x6-1/00012"}))

    (picture,) = observation.pictures
    assert picture.media_type == "image/png"
    assert observation.anchor_state is not None
    assert "@" in observation.anchor_state
