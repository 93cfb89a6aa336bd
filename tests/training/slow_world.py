"""An environment in which one training episode of a run takes longer than all around it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Gymnasium is typed in part.

import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium

from longhaul_core.types import Split, Task
from training import wordy_world

ID = "longhaul-tests/Slow-v0"
FOLDER, UNTIL = "LONGHAUL_TEST_FOLDER", "LONGHAUL_TEST_UNTIL"
"""Variables: where the run is, and the SQL that says when the slow episode may go on."""

LONGEST_SECONDS = 240.0


class SlowWorld(wordy_world.WordyWorld):
    """Pays for words; the first training episode to get there waits for `UNTIL` to be true."""

    def tasks(self, split: Split, limit: int | None = None) -> Sequence[Task]:
        return [replace(task, environment=ID) for task in super().tasks(split, limit)]

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        if self._is_the_slow_one():
            folder = Path(os.environ[FOLDER])
            latest = time.monotonic() + LONGEST_SECONDS
            while not _is_true(folder / "longhaul.db") and time.monotonic() < latest:
                time.sleep(0.1)
        return super().step(action)

    def _is_the_slow_one(self) -> bool:
        if self._is_validation:
            return False
        try:
            (Path(os.environ[FOLDER]) / "slow").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[str, dict[str, object]]:
        assert options is not None
        self._is_validation = not str(options["task_id"]).startswith("train")
        return super().reset(seed=seed, options=options)


def _is_true(store: Path) -> bool:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return bool(connection.execute(os.environ[UNTIL]).fetchone()[0])
    finally:
        connection.close()


gymnasium.register(ID, entry_point=f"{__name__}:SlowWorld")
