"""ScienceWorld as a Gymnasium environment of text. Worlds, goals and scores are the authors'."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_core.types import Split
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.scienceworld import tasks as task_list
from longhaul_envs.scienceworld.expert import Expert
from longhaul_envs.scienceworld.world import UNKNOWN_ACTION, World
from longhaul_envs.text import MAX_ACTION_CHARACTERS

__all__ = ["ScienceWorld"]

_FAILED = -100
"""The score after the wrong thing was declared."""


class ScienceWorld(PackagedEnv[str, task_list.ScienceWorldOptions]):
    """Do an experiment, find a thing or grow a plant.

    Task:
        One of thirty, in a variation: which substance, plant or room.
    Action:
        A verb with objects by the names that observations use. Longer than 256 characters is
        none of them.
    Reward:
        What the best score so far rose by, in hundredths: 1.0 over a solved episode, less what the
        task begins with, never below 0. Under `reward = "score"` the change of the score in
        points, the authors'.
    Episode end:
        Terminated when every goal is reached (score 100), or when the wrong thing was declared
        by `focus on` (score -100). Truncated by `env_step_limit`, where it is set.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws one of the training tasks.
    Info:
        `admissible_actions` under `admissible = "valid"`. `anchor_state`. `success`.
        `action_accepted`: False if the text is no action. `score`: in points.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._world: World | None = None
        self._task = ("", 0)
        self._expert: Expert | None = None
        self._text = ""
        self._score = self._best_score = 0
        self._over = True

    def expert_action(self) -> str | None:
        """The next action of the authors' gold path; None once it was left."""
        world, expert = self._playing()
        if expert.path is None:
            name, variation = self._task
            expert.path = world.gold_path(name, variation, self.options.simplifications)
        return expert.next_action()

    def goal_parts(self) -> tuple[str, ...]:
        """What is to be declared, where the task asks for that."""
        return ("declared",)

    def mistaken_action(self, part: str) -> str | None:
        """The gold path's next action, which declares the agent in place of what is asked for."""
        action = self.expert_action()
        _, expert = self._playing()
        if not any(taken.startswith("focus on ") for taken in expert.path or ()):
            return None
        return "focus on agent" if action is not None and action.startswith("focus on ") else action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._task = task_list.parse_task_id(str(options["task_id"]))
        else:
            listed = task_list.tasks(Split.TRAIN, self.options)
            drawn = listed[int(self.np_random.integers(len(listed)))]
            self._task = task_list.parse_task_id(drawn.task_id)
        if self._world is None:
            self._world = World()
        seen = self._world.load(*self._task, self.options.simplifications)
        self._expert, self._over = Expert(), False
        self._score = self._best_score = self._world.score  # some tasks begin with points
        return self._observe(self._world, seen), self._info(self._world, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        world, expert = self._playing()
        if self._over:
            raise ResetNeeded("the episode is over; reset before the next step")
        words = " ".join(action.split())
        known = len(words) <= MAX_ACTION_CHARACTERS and words.isprintable()
        seen = world.step(words) if known else UNKNOWN_ACTION
        accepted = not seen.startswith(UNKNOWN_ACTION)
        if accepted:
            expert.took(words)
        reward = self._reward(world.score)
        terminated = world.is_completed or self._score == _FAILED
        limit = self.options.env_step_limit
        truncated = not terminated and 0 < limit < world.num_moves
        self._over = terminated or truncated
        info = self._info(world, accepted=accepted)
        return self._observe(world, seen), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8]:
        world, _ = self._playing()
        return text_picture(f"{self._text}\n\nScore {self._score}\n{world.surroundings()}")

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    def _playing(self) -> tuple[World, Expert]:
        if self._world is None or self._expert is None:
            raise ResetNeeded("reset before the first step")
        return self._world, self._expert

    def _reward(self, score: int) -> float:
        change, self._score = score - self._score, score
        rise = max(0, score - self._best_score)
        self._best_score += rise
        return float(change) if self.options.reward == "score" else rise / 100

    def _observe(self, world: World, seen: str) -> str:
        lines = [f"Goal: {world.description}", seen]
        if self.options.show_objects:
            lines.append(f"Objects: {', '.join(world.objects())}")
        self._text = "\n".join(lines)
        return self._text

    def _info(self, world: World, *, accepted: bool) -> dict[str, Any]:
        exact = self.options.anchor == "state"
        state = world.state_hash() if exact else world.surroundings()
        info: dict[str, Any] = {
            "anchor_state": f"{self._task[0]}/{self._task[1]} {state}",
            "success": world.is_completed and self._score == -_FAILED,
            "action_accepted": accepted,
            "score": self._score,
        }
        if self.options.admissible == "valid":
            info["admissible_actions"] = [] if self._over else world.valid_actions()
        return info
