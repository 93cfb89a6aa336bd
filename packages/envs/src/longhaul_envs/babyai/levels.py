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

__all__ = ["AGENTGYM", "ALL", "WITHOUT_EXPERT", "all_levels", "expand", "ids_by_level"]

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

AGENTGYM = (
    "GoToRedBallGrey",
    "GoToRedBall",
    "GoToRedBallNoDists",
    "GoToObjS4",  # `GoToObjS6` in the releases of MiniGrid that the server asks for
    "GoToLocalS8N7",
    "GoToObjMazeS7",
    "GoToImpUnlock",
    "GoToSeqS5R2",
    "GoToRedBlueBall",
    "GoToDoor",
    "GoToObjDoor",
    "Open",
    "OpenRedDoor",
    "OpenDoorLoc",
    "OpenRedBlueDoorsDebug",
    "OpenDoorsOrderN4Debug",
    "Pickup",
    "UnblockPickup",
    "PickupLoc",
    "PickupDistDebug",
    "PickupAbove",
    "PutNextLocalS6N4",
    "PutNextS7N4Carrying",
    "Unlock",
    "UnlockLocalDist",
    "KeyInBox",
    "UnlockPickupDist",
    "BlockedUnlockPickup",
    "UnlockToUnlock",
    "ActionObjDoor",
    "FindObjS7",
    "KeyCorridorS6R3",
    "OneRoomS20",
    "MoveTwoAcrossS8N9",
    "SynthS5R2",
    "SynthLoc",
    "SynthSeq",
    "MiniBossLevel",
    "BossLevel",
    "BossLevelNoUnlock",
)
"""The levels of AgentGym's server, whose item `i` is the level at `i % 40`, built from the seed
`i // 40`. `agentgym` stands for them in the option `levels`."""

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
    """`levels`, or what `all` or `agentgym` stands for.

    Raises:
        ConfigError: If there is none, one is unknown, or one is named beside such a word.
    """
    known = all_levels()
    words = {
        ALL: tuple(level for level in known if level not in WITHOUT_EXPERT),
        "agentgym": AGENTGYM,
    }
    if len(levels) == 1 and levels[0] in words:
        return words[levels[0]]
    if not levels:
        raise ConfigError("levels must name at least one BabyAI level, got none")
    for level in levels:
        if level in words:
            raise ConfigError(f"levels is {level!r} alone or names levels, got {list(levels)}")
        if level not in known:
            raise ConfigError(
                f"no BabyAI level is called {level!r}; there are {', '.join(known)}, {ALL!r} for "
                "all that the bot solves, and 'agentgym' for those of AgentGym's server"
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
