"""ScienceWorld beside AgentGym's server of it, under its settings: the same actions, step by step.

Each has a Java of its own, and the one that theirs starts lists the things of a room in an order
that it draws by chance: of an observation the words are compared, not their order.
"""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from longhaul_core.types import Observation, Split
from longhaul_envs import play
from longhaul_envs.against.originals import Pair, original_module
from longhaul_envs.contract.recording import NONSENSE
from longhaul_envs.scienceworld.environment import ScienceWorld

__all__ = ["AuthorsServer", "drawn_action", "options", "pairs", "words"]

_HORIZON = 40


class AuthorsServer:
    """An environment of AgentGym's server, without its HTTP."""

    def __init__(self, folder: Path) -> None:
        """Import it from a checkout, and start its Java.

        Raises:
            ConfigError: If it is not there, or needs what is not installed.
        """
        with contextlib.redirect_stdout(io.StringIO()):  # it prints
            module = original_module(
                folder / "agentenv-sciworld", "agentenv_sciworld", "environment"
            )
            self._server = module.server
            self._place = self._server.create()["id"]
        games = enumerate(self._server.games)
        self._numbers = {f"{one['taskName']}/{one['variationIdx']}": n for n, one in games}

    def reset(self, task_id: str) -> dict[str, Any]:
        """Begin a task; what the server answers."""
        return self._server.reset(self._place, self._numbers[task_id])

    def step(self, action: str) -> dict[str, Any]:
        """What it answers to an action."""
        return self._server.step(self._place, action)

    def close(self) -> None:
        """End its Java."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.close(self._place)


def options() -> dict[str, Any]:
    """Options under which ours is as theirs."""
    return {
        "tasks": ("agentgym",),
        "reward": "score",
        "admissible": "valid",
        "show_objects": False,
        "env_step_limit": 100,
    }


def words(seen: str) -> list[str]:
    """Those of an observation, sorted."""
    return sorted(re.findall(r"\w+", seen))


def drawn_action(ours: ScienceWorld, seen: Observation, random: Random) -> str:
    """The expert's; now and then, and once its path was left, a valid one or what is no action."""
    valid = random.choice(seen.admissible_actions or ("look around",))
    kinds = ours.expert_action() or valid, valid, NONSENSE["unknown words"]
    return random.choices(kinds, weights=(18, 1, 1))[0]


def pairs(folder: Path, random: Random) -> Iterator[Pair]:
    """Goal and first observation, then observation, reward and end of experts that stray."""
    server = AuthorsServer(folder)
    ours = ScienceWorld(**options())
    tasks = ours.tasks(Split.TRAIN)
    try:
        while True:
            task = random.choice(tasks)
            observation = play.start(ours, task)
            theirs = server.reset(task.task_id)
            goal, _, seen = observation.text.partition("\n")
            case = f"{task.task_id}, its beginning"
            yield Pair("goal", case, goal.removeprefix("Goal: "), theirs["task_description"])
            yield Pair("observation", case, words(seen), words(theirs["observation"]))
            for _ in range(_HORIZON):
                action = drawn_action(ours, observation, random)
                result, theirs = play.act(ours, action), server.step(action)
                observation = result.observation
                case = f"{task.task_id}, {action!r}"
                seen = observation.text.partition("\n")[2]
                yield Pair("observation", case, words(seen), words(theirs["observation"]))
                yield Pair("reward", case, result.reward, float(theirs["reward"]))
                over = result.terminated or result.truncated
                yield Pair("end", case, over, theirs["done"])
                if over or theirs["done"]:
                    break
    finally:
        ours.close()
        server.close()
