"""Writes `sokoban_levels.json`: how many moves verl-agent's Sokoban levels take at least.

    git clone https://github.com/shatianming5/verl-agent    # at 3483665
    uv run --with matplotlib python tests/golden/make_sokoban_levels.py verl-agent

It runs `generate_room` of that folder unchanged, as `ppo_trainer.yaml` and `SokobanEnv` call it,
with seeds 0, 1, 2 ..., and finds a shortest solution of each room by going through all states.
"""

import importlib.util
import json
import random
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np

from longhaul_envs.sokoban.board import Board, Position

FILE = Path(__file__).parent / "sokoban_levels.json"
NUM_LEVELS, SIZE = 2000, 6
ROOM_UTILS = "agent_system/environments/env_package/sokoban/sokoban/room_utils.py"


def shortest_solution(board: Board, start: Position) -> int:
    """Moves of a shortest solution, which there must be."""
    distances, frontier = {start: 0}, deque([start])
    while not board.is_solved(position := frontier.popleft()):
        for following in (board.move(position, a) for a in board.effective_actions(position)):
            if following not in distances:
                distances[following] = distances[position] + 1
                frontier.append(following)
    return distances[position]


def their_level(rooms: Any, seed: int) -> tuple[Board, Position]:  # noqa: ANN401
    """The room that their generator gives for a seed of both its generators."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  theirs
    made = rooms.generate_room(dim=(SIZE, SIZE), num_steps=20, num_boxes=1, search_depth=30)
    structure, room = (np.asarray(array).ravel() for array in made[:2])
    floor, targets = ({*np.flatnonzero(structure == kind).tolist()} for kind in (1, 2))
    board = Board(SIZE, frozenset(floor | targets), frozenset(targets))
    boxes = frozenset(np.flatnonzero((room == 3) | (room == 4)).tolist())
    return board, Position(int(np.flatnonzero(room == 5)[0]), boxes)


def main() -> None:
    """Run the authors' code of the folder that the command names, and write the file."""
    spec = importlib.util.spec_from_file_location("room_utils", Path(sys.argv[1]) / ROOM_UTILS)
    assert spec is not None
    assert spec.loader is not None
    rooms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rooms)
    counts = Counter(shortest_solution(*their_level(rooms, seed)) for seed in range(NUM_LEVELS))
    written = {
        "source": "shatianming5/verl-agent 3483665, generate_room(dim=(6, 6), num_steps=20, "
        "num_boxes=1, search_depth=30), seeds 0 to 1999; by tests/golden/make_sokoban_levels.py",
        "moves": {str(moves): counts[moves] for moves in sorted(counts)},
    }
    FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
