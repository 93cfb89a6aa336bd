"""One world of the simulator: what a step needs of it, and its state as a key."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, cast

from longhaul_envs.scienceworld import java
from longhaul_envs.task_lists import content_hash

__all__ = ["UNKNOWN_ACTION", "World"]

UNKNOWN_ACTION = "No known action matches that input."
"""What the simulator answers to text that is no action; time does not pass then."""

_FIRST_ACTION = "look around"

_GOLD_PATHS: dict[tuple[str, int, str], tuple[str, ...]] = {}
"""Those that were made in this process, by task, variation and simplifications."""


class _Node(TypedDict):
    """An object of the simulator's tree, beside its properties."""

    uuid: str
    name: str
    contents: dict[str, "_Node"]


class World:
    """A task being played."""

    def __init__(self) -> None:
        """Take a place in this process's Java.

        Raises:
            ConfigError: The extra is not installed.
            MachineError: There is no Java runtime, or it does not start.
        """
        self._java: java.JavaProcess | None = java.shared()
        self._world: Any = self._java.new_world()
        self._gold: Any = None

    def load(self, task: str, variation: int, simplifications: Sequence[str]) -> str:
        """Begin a task; what is seen first."""
        self._world.load(task, variation, ",".join(simplifications), False)
        return self.step(_FIRST_ACTION)

    def step(self, action: str) -> str:
        """What `action` brings, in words."""
        return str(self._world.step(action))

    @property
    def description(self) -> str:
        """The task in words."""
        return str(self._world.getTaskDescription())

    @property
    def score(self) -> int:
        """From 0 to 100, or -100 once the wrong thing was declared."""
        return round(100 * self._world.getScore())

    @property
    def is_completed(self) -> bool:
        """Whether every goal is reached."""
        return bool(self._world.getCompleted())

    @property
    def num_moves(self) -> int:
        """How much time has passed, in steps; looking costs none."""
        return int(self._world.getNumMoves())

    def surroundings(self) -> str:
        """What looking around and the inventory show. Costs no time."""
        return f"{self._world.freeActionLook()}\n{self._world.freeActionInventory()}"

    def objects(self) -> list[str]:
        """Names of what actions can take, sorted."""
        return sorted(set(map(str, self._world.getPossibleObjects())))

    def valid_actions(self) -> list[str]:
        """What the simulator calls valid, sorted; some hundreds to ten thousand."""
        return sorted(set(map(str, self._world.getValidActionObjectCombinations())))

    def state_hash(self) -> str:
        """Equal exactly when the world is.

        Of every object with its properties and place, the goals reached, and the time that passed,
        by which living things age. Object numbers, which the simulator counts over all its worlds,
        are left out.
        """
        with TemporaryDirectory(prefix="longhaul-scienceworld-") as folder:
            problem = self._world.getObjectTree(folder)
            if problem:
                raise RuntimeError(f"ScienceWorld gives no object tree: {problem}")
            tree = json.loads((Path(folder) / "objectTree.json").read_text("utf-8"))
        parts = (_canonical(tree, _names(tree)), self._world.getGoalProgressStr(), self.num_moves)
        return content_hash("\n".join(map(str, parts)))

    def gold_path(self, task: str, variation: int, simplifications: Sequence[str]) -> list[str]:
        """The authors' solution from the start; made in a world beside this one, in seconds, once.

        The process keeps it, for each instance and episode that asks for it.
        """
        asked = (task, variation, ",".join(simplifications))
        if asked not in _GOLD_PATHS:
            if self._gold is None:
                self._gold = self._running().new_world()
            self._gold.load(*asked, True)
            _GOLD_PATHS[asked] = tuple(str(action) for action in self._gold.getGoldActionSequence())
        return [*_GOLD_PATHS[asked]]

    def close(self) -> None:
        """Free what it holds; the last world of a process ends its Java. Safe to call twice."""
        if self._java is not None:
            used, self._java = self._java, None
            java.release(used)

    def _running(self) -> java.JavaProcess:
        if self._java is None:
            raise RuntimeError("this world is closed")
        return self._java


def _names(node: _Node) -> dict[str, str]:
    names = {node["uuid"]: node["name"]}
    for inner in node["contents"].values():
        names.update(_names(inner))
    return names


def _canonical(node: _Node, names: Mapping[str, str]) -> str:
    """A tree as text, in which children stand in an order of their own content."""
    properties = {
        key: value for key, value in node.items() if key not in ("uuid", "contents") and value
    }
    wires = cast("dict[str, list[object]] | None", properties.get("propElectricalConnection"))
    if wires is not None:
        joined = [names.get(str(end), str(end)) for end in wires.get("connectedTo", [])]
        properties["propElectricalConnection"] = sorted(joined)
    inner = sorted(_canonical(child, names) for child in node["contents"].values())
    return f"{json.dumps(properties, sort_keys=True)}[{','.join(inner)}]"
