"""An environment of one's own with task data of one's own; the next script uses it."""

from typing import Any

import gymnasium

from longhaul_core.types import Split, Task
from longhaul_envs.task_lists import tasks_from_rows
from longhaul_envs.text import text_space

CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Kenya": "Nairobi", "Peru": "Lima"}
TASKS = tasks_from_rows("mine/Capitals-v0", {land: f"capital of {land}" for land in CAPITALS})


class Capitals(gymnasium.Env[str, str]):
    observation_space = action_space = text_space()

    def tasks(self, split: Split, limit: int | None = None) -> tuple[Task, ...]:
        return TASKS[split][:limit]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.land = options["task_id"] if options else str(self.np_random.choice(list(CAPITALS)))
        return f"Goal: name the capital of {self.land}", self.info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        known, right = action in CAPITALS.values(), action == CAPITALS[self.land]
        return "Right" if right else "No", float(right), known, False, self.info(accepted=known)

    def info(self, *, accepted: bool) -> dict[str, Any]:
        return {"admissible_actions": sorted(CAPITALS.values()), "action_accepted": accepted}


gymnasium.register("mine/Capitals-v0", "capitals:Capitals")  # pyright: ignore[reportUnknownMemberType]
