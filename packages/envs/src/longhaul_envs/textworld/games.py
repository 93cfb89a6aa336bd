"""Games in the data folder's cache: built once, by a process of its own, and moved there whole.

TextWorld draws from a generator that is global to the process, and the order of Python's sets has a
part in what it makes. So a game is built where nothing else is done and string hashes are fixed
(`build.py`), in a folder of its own that is then renamed: two who build the same game at once both
find it whole, and it is the same.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from longhaul_core.errors import EnvironmentFailure
from longhaul_envs.data import folder

__all__ = ["CONTENT_FILE", "GAME_FILE", "Settings", "built", "game_folder", "settings_text"]

Settings = Mapping[str, int | str | bool]

GAME_FILE = "game.z8"
CONTENT_FILE = "content.txt"
"""A hash of the game's world, quests and words; empty where the generator finds no quest."""

_START_SECONDS, _SECONDS_PER_GAME = 300, 120
"""Far more than they take: 3 and 3 on an idle machine."""

_HASH_SEED = "0"

logger = logging.getLogger(__name__)


def settings_text(settings: Settings) -> str:
    """The settings in one word, e.g. `cook,go=6,recipe=1`; what is false is left out."""
    return ",".join(
        name if value is True else f"{name}={value}"
        for name, value in sorted(settings.items())
        if value is not False
    )


def game_folder(family: str, settings: Settings, seed: int) -> Path:
    """Where a game lies, or will lie."""
    release = f"textworld-{version('textworld')}"
    return folder("textworld") / release / family / settings_text(settings) / str(seed)


def built(family: str, settings: Settings, seeds: Iterable[int]) -> list[str | None]:
    """The content of each game, built if it is not there: 1 to 3 seconds a game.

    Returns:
        A hash for each seed; None for those of which the generator makes no game.

    Raises:
        EnvironmentFailure: The generator failed.
    """
    folders = {seed: game_folder(family, settings, seed) for seed in seeds}
    missing = {s: path for s, path in folders.items() if not (path / CONTENT_FILE).is_file()}
    if missing:
        logger.info("building %d TextWorld games (%s)", len(missing), family)
        _build(family, settings, missing)
    return [(path / CONTENT_FILE).read_text(encoding="utf-8") or None for path in folders.values()]


def _build(family: str, settings: Settings, folders: Mapping[int, Path]) -> None:
    request = {
        "family": family,
        "settings": dict(settings),
        "folders": [[seed, str(path)] for seed, path in folders.items()],
    }
    asked = f"{family} {settings_text(settings)}, seeds {list(folders)}"
    seconds = _START_SECONDS + _SECONDS_PER_GAME * len(folders)
    try:
        with tempfile.TemporaryDirectory() as home:
            answer = subprocess.run(
                [sys.executable, "-m", "longhaul_envs.textworld.build"],
                input=json.dumps(request),
                env={
                    **os.environ,
                    "HOME": home,  # where Inform 7, the games' compiler, leaves notes of its own
                    "PYTHONHASHSEED": _HASH_SEED,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(
            f"TextWorld's generator was not done with {asked} after {seconds} s"
        ) from error
    if answer.returncode != 0:
        raise EnvironmentFailure(
            f"TextWorld's generator failed on {asked}: {answer.stderr.strip()[-1000:]}"
        )
