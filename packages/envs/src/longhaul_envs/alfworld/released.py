"""The games that `alfworld-download` fetches: where they lie, and what is read of them.

A game is a folder `SPLIT/TASK/TRIAL` with `traj_data.json` (kind of errand, object, receptacle) and
`game.tw-pddl` (JSON: domain, grammar, problem, and whether it was solved). The authors leave out
errands with movable receptacles and slices, games that are not known to be solvable, and so do we.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.alfworld.game import UNKNOWN_GOAL, Game, wheel_domain, wheel_grammar
from longhaul_envs.alfworld.rooms import FAMILIES
from longhaul_envs.data import folder

__all__ = ["SPLITS", "games", "read_game", "root"]

SPLITS = {Split.TRAIN: "train", Split.VALIDATION: "valid_seen", Split.TEST: "valid_unseen"}
"""Ours to the authors': test games are those of rooms in which nobody trains."""

_RELEASES = ("json_2.1.1", "json_2.1.2")
_GOAL = re.compile(r"Your task is to: ([^\"\\\n]+?)\.?\"")
_LEFT_OUT = ("movable", "Sliced")

_Kind = TypeVar("_Kind", bound=BaseModel)


class _Parameters(BaseModel):
    object_target: str
    parent_target: str
    toggle_target: str


class _Trajectory(BaseModel):
    """What is read of `traj_data.json`."""

    task_type: str
    pddl_params: _Parameters


class _GameFile(BaseModel):
    """What is read of `game.tw-pddl`."""

    pddl_domain: str
    grammar: str
    pddl_problem: str
    solvable: bool | None = None


def root() -> Path:
    """The folder of the released games: `$ALFWORLD_DATA`, or ours for `alfworld`.

    Raises:
        ConfigError: There is none.
    """
    given = os.environ.get("ALFWORLD_DATA")
    base = Path(given) if given else folder("alfworld")
    for name in _RELEASES:
        if (base / name / SPLITS[Split.TRAIN]).is_dir():
            return base / name
    raise ConfigError(
        f"there are no released ALFWorld games in {base}; fetch them by `trainer data "
        "fetch alfworld` (or set ALFWORLD_DATA to where they lie), or play those that are made "
        'without a download: games = "generated"'
    )


def games(split: Split, families: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Id and family of every game of a split, sorted by id.

    Raises:
        ConfigError: There are no released games, or a file is none.
    """
    start = root()
    for path in sorted((start / SPLITS[split]).glob("*/*/traj_data.json")):
        game_id = path.parent.relative_to(start).as_posix()
        if any(word in game_id for word in _LEFT_OUT):
            continue
        family = _read(_Trajectory, path).task_type
        file = path.parent / "game.tw-pddl"
        if family in families and file.is_file() and _read(_GameFile, file).solvable:
            yield game_id, family


@lru_cache(maxsize=16)
def read_game(game_id: str, wording: str) -> Game:
    """The game of an id, e.g. `valid_seen/pick_and_place_simple-Mug-…/trial_T2019…`.

    Args:
        game_id: Its folder below the root.
        wording: `current`, the installed wheel's actions and words around the released state and
            goal; or `released`, the file's own, which say `put X in/on Y`.

    Raises:
        ConfigError: There are no released games, or a file is none.
        ValueError: No game has this id.
    """
    parts = Path(game_id).parts
    place = root() / game_id
    if len(parts) != 3 or parts[0] not in SPLITS.values() or ".." in parts or not place.is_dir():
        raise ValueError(f"no released ALFWorld game is called {game_id!r} in {root()}")
    trajectory = _read(_Trajectory, place / "traj_data.json")
    file = _read(_GameFile, place / "game.tw-pddl")
    goal = _GOAL.search(file.grammar)
    if goal is None:
        raise ConfigError(f"the grammar of {place / 'game.tw-pddl'} names no goal")
    if trajectory.task_type not in FAMILIES:
        raise ValueError(f"{game_id!r} is an errand that ALFWorld leaves out")
    own = wording == "released"
    parameters = trajectory.pddl_params
    lit = trajectory.task_type == "look_at_obj_in_light"
    return Game(
        family=trajectory.task_type,
        target=parameters.object_target.lower(),
        destination=(parameters.toggle_target if lit else parameters.parent_target).lower(),
        goal=goal[1],
        domain=file.pddl_domain if own else wheel_domain(),
        # One grammar for all games, so that it is parsed once.
        grammar=file.grammar.replace(goal[1], UNKNOWN_GOAL) if own else wheel_grammar(),
        problem=file.pddl_problem,
    )


def _read(kind: type[_Kind], path: Path) -> _Kind:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no file of ALFWorld's release: {error}") from error
