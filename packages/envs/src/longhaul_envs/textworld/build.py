"""Builds games as `tw-make` does. A program; `games.py` starts it, with fixed string hashes."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from longhaul_envs.extras import required
from longhaul_envs.task_lists import content_hash
from longhaul_envs.textworld.games import CONTENT_FILE, GAME_FILE

_CHALLENGES = {
    "cooking": "tw-cooking",
    "simple": "tw-simple",
    "coin": "tw-coin_collector",
    "treasure": "tw-treasure_hunter",
}
_FIXED: dict[str, dict[str, Any]] = {"cooking": {"recipe_seed": 0}, "simple": {"test": False}}
"""What the makers ask for beside the settings: the recipe is drawn with the rest."""

_OF_CONTENT = ("world", "quests", "infos", "objective")
"""What of a game's file is its content; the rest is the generator's knowledge and its seeds."""


def build(family: str, settings: dict[str, Any], seed: int, target: Path) -> None:
    """Put the game of a seed into the folder `target`, unless another process did so first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{seed}-", dir=target.parent))
    try:
        _make(family, settings, seed, made)
        os.rename(made, target)
    except OSError:
        if not (target / CONTENT_FILE).is_file():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _make(family: str, settings: dict[str, Any], seed: int, folder: Path) -> None:
    textworld: Any = required("textworld", "textworld")
    generator: Any = required("textworld.generator", "textworld")
    options = textworld.GameOptions()
    options.seeds = seed
    options.path = str(folder / GAME_FILE)
    options.file_ext = ".z8"
    try:
        if family == "custom":
            game = _custom(options, settings)
        else:
            challenges: Any = required("textworld.challenges", "textworld")
            _, make, _ = challenges.CHALLENGES[_CHALLENGES[family]]
            game = make(settings={**_FIXED.get(family, {}), **settings}, options=options)
    except generator.QuestGenerationError:
        (folder / CONTENT_FILE).write_text("", encoding="utf-8")
        return
    options.path = str(folder / GAME_FILE)
    options.force_recompile = True  # some families compile a draft there
    generator.compile_game(game, options)
    data = json.loads((folder / "game.json").read_text(encoding="utf-8"))
    content = json.dumps({key: data[key] for key in _OF_CONTENT}, sort_keys=True)
    (folder / CONTENT_FILE).write_text(content_hash(content), encoding="utf-8")


def _custom(options: Any, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    generator: Any = required("textworld.generator", "textworld")
    options.nb_rooms = settings["world_size"]
    options.nb_objects = settings["nb_objects"]
    options.chaining.min_length = options.chaining.max_length = settings["quest_length"]
    options.chaining.max_depth = settings["quest_length"]
    options.grammar.theme = settings["theme"]
    return generator.make_game(options)


if __name__ == "__main__":
    _request = json.load(sys.stdin)
    for _seed, _folder in _request["folders"]:
        build(_request["family"], _request["settings"], _seed, Path(_folder))
