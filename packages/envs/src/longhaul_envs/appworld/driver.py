"""Plays AppWorld in the interpreter that has it. Run as a program, never imported.

It needs Python's standard library and `appworld` alone, and nothing of Longhaul, whose packages
that interpreter cannot have: `appworld` pins pydantic 1.10. Requests and replies are lines of
JSON on its standard input and output, which the code of the episode does not get.
"""

import importlib
import json
import os
import resource
import shutil
import sys
from typing import Any

_MAX_OUTPUT = 100_000
"""Characters of what an execution printed that are sent."""


def main(memory_gib: int, experiment: str) -> None:
    """Answer requests until there are no more; what the package raises ends the process."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what is printed is for the log
    resource.setrlimit(resource.RLIMIT_AS, (memory_gib << 30, memory_gib << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worlds = _Worlds(experiment)
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        reply = getattr(worlds, request.pop("call"))(**request)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    worlds.close()


class _Worlds:
    """One world after the other."""

    def __init__(self, experiment: str) -> None:
        self._experiment = experiment
        self._package: Any = None
        self._world: Any = None

    def start(self, task_id: str, execution_seconds: int) -> dict[str, object]:
        """Begin a task; what is known of it at first."""
        self.close()
        if self._package is None:
            self._package = importlib.import_module("appworld")
        self._world = self._package.AppWorld(
            task_id=task_id, experiment_name=self._experiment, timeout_seconds=execution_seconds
        )
        task = self._world.task
        names = ("first_name", "last_name", "email", "phone_number")
        return {
            "instruction": task.instruction,
            "supervisor": {name: task.supervisor[name] for name in names},
            "datetime": str(task.datetime),
        }

    def execute(self, code: str) -> dict[str, object]:
        """Run `code`; what it printed, and whether the task was declared complete."""
        output = str(self._world.execute(code))
        return {
            "output": output[:_MAX_OUTPUT],
            "length": len(output),
            "completed": bool(self._world.task_completed()),
        }

    def evaluate(self) -> dict[str, object]:
        """The verdict of the task's own tests."""
        verdict = self._world.evaluate(suppress_errors=True).to_dict(stats_only=False)
        return {
            "success": bool(verdict["success"]),
            "num_tests": int(verdict["num_tests"]),
            "num_passes": len(verdict["passes"]),
        }

    def close(self) -> dict[str, object]:
        """End the task and remove what it wrote."""
        if self._world is not None:
            self._world.close()
            shutil.rmtree(self._world.base_output_directory, ignore_errors=True)
            self._world = None
        return {}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
