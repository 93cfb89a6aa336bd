"""What the processes of a run must know to find each other: a small file in the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.types import Task
from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.run.demonstrations import Demonstration, Demonstrations


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Which run this is, and the name of its recorder."""

    run_id: str
    attempt: int
    """0 for the first start of the run, one more for each resume."""
    recorder_name: str
    config: RunConfig
    descriptions: Mapping[str, EnvironmentDescription]
    """The description that each environment of the run gives of itself, keyed by its id; requested
    once, read by all."""
    demonstrations: Demonstrations | None = None
    """What is imitated, as the folder above names it; None where nothing is."""

    def demonstration(
        self, training_step: int, *, group_index: int, place: int
    ) -> tuple[Task, Demonstration]:
        """What is imitated beside a group of reinforcement learning, and its task.

        Args:
            training_step: That plays the group.
            group_index: 0-based place of the group among those that it plays.
            place: 0-based, among the demonstrations beside the group.
        """
        if self.demonstrations is None:
            raise ValueError("the run imitates nothing")
        group = (training_step - 1) * self.config.tasks_per_training_step + group_index
        number = group * self.config.imitation.demonstrations_per_group + place
        return self.demonstrations.beside(number, seed=self.config.seed)

    def write(self, folder: Path) -> Path:
        """Leave the run_context in the run's folder and return its path."""
        config = folder / "resolved.toml"
        config.write_text(self.config.to_toml(), encoding="utf-8")
        path = folder / f"run_context-{self.attempt}.json"
        content = {
            "run_id": self.run_id,
            "attempt": self.attempt,
            "recorder_name": self.recorder_name,
            "config": str(config),
            "descriptions": {name: asked.to_json() for name, asked in self.descriptions.items()},
            "demonstrations": self.demonstrations is not None,
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """The run_context at `path`."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            **content
            | {
                "config": load_config(Path(content["config"])),
                "descriptions": {
                    name: EnvironmentDescription.from_json(text)
                    for name, text in content["descriptions"].items()
                },
                "demonstrations": Demonstrations.read(path.parent.parent)
                if content["demonstrations"]
                else None,
            }
        )
