"""BabyAI's levels: those that MiniGrid registers, and those that its bot cannot solve.

Run as a program it plays the levels named, or all, by the expert, and prints how many of three
tasks of each were solved.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache

import gymnasium
import minigrid  # noqa: F401  registers the levels  # pyright: ignore[reportUnusedImport]

from longhaul_core.errors import ConfigError

__all__ = ["ALL", "WITHOUT_EXPERT", "all_levels", "expand", "ids_by_level"]

ALL = "all"
"""Stands for every level that the bot solves, in the option `levels`."""

WITHOUT_EXPERT = frozenset(
    {
        "KeyInBox",
        "OpenDoorsOrderN2Debug",
        "OpenDoorsOrderN4Debug",
        "PutNextS5N2Carrying",
        "PutNextS6N3Carrying",
        "PutNextS7N4Carrying",
    }
)
"""Levels that can be played by name, and that MiniGrid's bot gives up: what lies in a box or is
carried from the start is not in its plans, and a wrong door ends the two others."""

_ID = re.compile(r"BabyAI-(\w+)-v[0-9]+")


@cache
def ids_by_level() -> Mapping[str, str]:
    """Gymnasium's id of each level of the installed MiniGrid, by its name, in alphabetical order.

    Nearly all are `BabyAI-NAME-v0`. Of a level with several versions it is the first one.
    """
    found: dict[str, str] = {}
    for name in sorted(gymnasium.registry):
        if match := _ID.fullmatch(name):
            found.setdefault(match[1], name)
    return found


def all_levels() -> tuple[str, ...]:
    """Names of all levels of the installed MiniGrid, in alphabetical order."""
    return tuple(ids_by_level())


def expand(levels: tuple[str, ...]) -> tuple[str, ...]:
    """`levels` with `all` replaced by every level that the bot solves.

    Raises:
        ConfigError: If there is none, one is unknown, or one is named beside `all`.
    """
    known = all_levels()
    if levels == (ALL,):
        return tuple(level for level in known if level not in WITHOUT_EXPERT)
    if not levels:
        raise ConfigError("levels must name at least one BabyAI level, got none")
    for level in levels:
        if level == ALL:
            raise ConfigError(f"levels is {ALL!r} alone or names levels, got {list(levels)}")
        if level not in known:
            raise ConfigError(
                f"no BabyAI level is called {level!r}; there are {', '.join(known)}, and {ALL!r} "
                "for all that the bot solves"
            )
    return levels


def main(levels: Sequence[str], *, num_tasks: int = 3) -> None:
    """Print, for each level, how many of its first test tasks the expert solves."""
    from longhaul_core.types import Split
    from longhaul_envs.babyai.environment import BabyAI
    from longhaul_envs.play import expert_policy, play

    for level in levels or all_levels():
        environment = BabyAI(levels=[level])
        tasks = environment.tasks(Split.TEST, num_tasks)
        episodes = [play(environment, task, expert_policy, horizon=500) for task in tasks]
        num_solved = sum(episode.success for episode in episodes)
        print(f"{level}: {num_solved} of {len(tasks)}", flush=True)  # noqa: T201  its output


if __name__ == "__main__":
    main(sys.argv[1:])
