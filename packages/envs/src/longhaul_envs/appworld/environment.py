"""AppWorld as a Gymnasium environment of text, played in a process of its own."""

import json
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_core.text import shortened, well_formed
from longhaul_core.types import Split
from longhaul_envs.appworld import tasks as task_list
from longhaul_envs.appworld.process import AppWorldProcess
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.task_lists import content_hash

__all__ = ["AppWorld"]

_START_SECONDS = 180
"""For the package's imports and a task's databases."""
_GRACE_SECONDS = 30
"""Beyond the package's own deadline of an execution, which it reports as output."""
_EVALUATE_SECONDS = 120
_MAX_CODE = 50_000
"""Characters."""
_FAILED = "Execution failed"
"""How the package's output begins where code raised, was refused, or took too long."""


class AppWorld(PackagedEnv[str, task_list.AppWorldOptions]):
    """Do a person's task in their apps by writing Python.

    Task:
        One of AppWorld's: an instruction, the person it is done for, and the date.
    Action:
        Python, at most 50,000 characters, run in one session that keeps its variables; a fence of
        backquotes around it is taken off.
    Reward:
        For the step that calls `apis.supervisor.complete_task`: 1.0 if every test of the task
        passes, else 0.0; with `reward = "share"`, the share that passes.
    Episode end:
        Terminated by `complete_task`. Never truncated here.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing. Without it
        the seed draws one of the training split.
    Info:
        `anchor_state`: the task, and a hash of all code that ran; two ways to one state have two.
        `success`: every test passes. `action_accepted`: False if nothing ran, or it failed. No
        admissible actions.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._process: AppWorldProcess | None = None
        self._task_id = ""
        self._start = ""
        self._history = ""
        self._over = True
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            task_id = task_list.checked_id(str(options["task_id"]))
        else:
            listed = self.tasks(Split.TRAIN)
            task_id = listed[int(self.np_random.integers(len(listed)))].task_id
        if self._process is not None and self._process.ended:
            self.close()
        if self._process is None:
            self._process = AppWorldProcess(
                python=self.options.python,
                root=self.options.root_folder,
                network=self.options.network,
                memory_gib=self.options.memory_gib,
            )
        begun = self._process.ask(
            "start",
            task_id=task_id,
            seconds=_START_SECONDS,
            execution_seconds=self.options.seconds_per_step,
        )
        person = begun["supervisor"]
        self._start = (
            f"Task: {begun['instruction']}\n"
            f"For: {person['first_name']} {person['last_name']}, {person['email']}, "
            f"{person['phone_number']}\n"
            f"Date: {begun['datetime']}"
        )
        self._task_id, self._history, self._over, self._shown = task_id, "", False, ""
        return self._observe(), self._info(accepted=True, success=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._process is None or self._over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        code = _without_fence(well_formed(action))
        if not code or len(code) > _MAX_CODE:
            self._shown = f"Write 1 to {_MAX_CODE:,} characters of Python, got {len(code):,}."
            return self._observe(), 0.0, False, False, self._info(accepted=False, success=False)
        ran = self._process.ask(
            "execute", code=code, seconds=self.options.seconds_per_step + _GRACE_SECONDS
        )
        output = str(ran["output"])
        self._history = content_hash(json.dumps([self._history, code]))
        self._shown = shortened(output, self.options.max_output_characters)
        self._over = bool(ran["completed"])
        reward, success = self._verdict(self._process) if self._over else (0.0, False)
        info = self._info(accepted=not output.startswith(_FAILED), success=success)
        return self._observe(), reward, self._over, False, info

    def render(self) -> NDArray[np.uint8]:
        return text_picture(self._observe())

    def close(self) -> None:
        process, self._process, self._over = self._process, None, True
        if process is not None:
            process.close()

    def _verdict(self, process: AppWorldProcess) -> tuple[float, bool]:
        verdict = process.ask("evaluate", seconds=_EVALUATE_SECONDS)
        success = bool(verdict["success"])
        if self.options.reward == "share":
            return int(verdict["num_passes"]) / max(1, int(verdict["num_tests"])), success
        return float(success), success

    def _observe(self) -> str:
        return f"{self._start}\nOutput:\n{self._shown}" if self._shown else self._start

    def _info(self, *, accepted: bool, success: bool) -> dict[str, Any]:
        return {
            "anchor_state": json.dumps([self._task_id, self._history]),
            "success": success,
            "action_accepted": accepted,
        }


def _without_fence(action: str) -> str:
    """The code, without a line of backquotes before and after it."""
    code = action.strip()
    if code.startswith("```") and code.endswith("```") and "\n" in code:
        code = code.partition("\n")[2].removesuffix("```")
    return code.strip()
