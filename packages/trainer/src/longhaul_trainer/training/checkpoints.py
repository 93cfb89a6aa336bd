"""Checkpoints that are there whole or not at all.

A checkpoint is written under a name that nobody reads and renamed when all of it is on
disk; the run's own state is written last, so a folder without it is the remains of a kill.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longhaul_trainer.run.directory import PanelScore

STATE_FILE = "longhaul.json"
PREFIX = "global_step_"
"""verl's own name of a checkpoint's folder."""
WRITING = ".writing-"
REPLACED = ".replaced-"


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    training_step: int
    folder: Path

    def state(self) -> dict[str, Any]:
        """The run's own state, as `publish` was given it."""
        return json.loads((self.folder / STATE_FILE).read_text(encoding="utf-8"))

    def validation(self) -> PanelScore | None:
        """How these weights did on the panel, if they were validated."""
        score = self.state().get("scores", {}).get(str(self.training_step))
        return None if score is None else PanelScore.stored(score)


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._settle_replacements()

    def complete(self) -> list[Checkpoint]:
        """Every complete checkpoint, oldest first."""
        found = [
            Checkpoint(int(path.name.removeprefix(PREFIX)), path)
            for path in self._folder.glob(f"{PREFIX}*")
            if (path / STATE_FILE).is_file()
        ]
        return sorted(found)

    def latest(self) -> Checkpoint | None:
        """The checkpoint to resume from."""
        complete = self.complete()
        return complete[-1] if complete else None

    def best(self) -> Checkpoint | None:
        """The complete checkpoint that did best in validation; the earlier one of equals.

        Those compete by their mean return that played the most of the panel: where hard tasks
        failed, the mean of the others is no better score.
        """
        best: tuple[Checkpoint, PanelScore] | None = None
        for checkpoint in self.complete():
            score = checkpoint.validation()
            if score is not None and (best is None or score.rank > best[1].rank):
                best = checkpoint, score
        return best and best[0]

    def begin(self, training_step: int) -> Path:
        """An empty folder to write checkpoint `training_step` into."""
        folder = self._folder / f"{WRITING}{training_step}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def publish(self, training_step: int, state: Mapping[str, object]) -> Checkpoint:
        """Give the folder of `begin` its name, with the run's state in it."""
        writing = self._folder / f"{WRITING}{training_step}"
        _write_whole(writing / STATE_FILE, state)
        _sync_tree(writing)
        folder = self._folder / f"{PREFIX}{training_step}"
        if folder.exists():  # the same step, saved twice
            folder.rename(self._folder / f"{REPLACED}{training_step}")
        writing.rename(folder)
        _sync(self._folder)
        self._settle_replacements()
        return Checkpoint(training_step, folder)

    def drop_unfinished(self) -> None:
        """Delete what `begin` made and `publish` was not called for."""
        for path in self._folder.glob(f"{WRITING}*"):
            shutil.rmtree(path, ignore_errors=True)

    def prune(self, *, keep_last: int, keep_best: bool) -> None:
        """Delete the remains of kills, and all but the newest `keep_last` and the best."""
        complete = self.complete()
        best = self.best() if keep_best else None
        for checkpoint in complete[:-keep_last]:
            if checkpoint != best:
                # The state file goes first: a kill in between leaves no half checkpoint that
                # looks complete.
                (checkpoint.folder / STATE_FILE).unlink()
                shutil.rmtree(checkpoint.folder)
        names = {checkpoint.folder for checkpoint in complete}
        for path in (*self._folder.glob(f"{PREFIX}*"), *self._folder.glob(f"{WRITING}*")):
            if path not in names:
                shutil.rmtree(path)

    def _settle_replacements(self) -> None:
        """Drop what was replaced, or put it back if a kill came before its replacement."""
        for path in self._folder.glob(f"{REPLACED}*"):
            folder = self._folder / f"{PREFIX}{path.name.removeprefix(REPLACED)}"
            if folder.exists():
                shutil.rmtree(path)
            else:
                path.rename(folder)


def _write_whole(path: Path, content: Mapping[str, object]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync(path.parent)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
