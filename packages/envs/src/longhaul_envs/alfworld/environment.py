"""ALFWorld as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_core.types import Split
from longhaul_envs.alfworld import tasks as task_list
from longhaul_envs.alfworld.engine import NOTHING_HAPPENS, Engine
from longhaul_envs.alfworld.expert import mistaken, next_move, parts_of
from longhaul_envs.alfworld.game import Game
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture

__all__ = ["ALFWorld"]


class ALFWorld(PackagedEnv[str, task_list.ALFWorldOptions]):
    """Do an errand in a room.

    Task:
        Put one or two things into a receptacle, cleaned, heated or cooled before that if the
        errand says so; or look at one under a lamp.
    Action:
        One of the admissible ones, or `help`. Anything else changes nothing.
    Reward:
        1.0 for the step that reaches the goal.
    Episode end:
        Terminated when the goal holds. Never truncated here: the horizon belongs to the episode
        loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws one of the training tasks.
    Info:
        `admissible_actions`. `anchor_state`: the game's facts. `success`. `action_accepted`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._engine: Engine | None = None
        self._game: Game | None = None
        self._text = ""

    def expert_action(self) -> str | None:
        """The next action on a way to the goal; see `longhaul_envs.alfworld.expert`."""
        engine, game = self._playing()
        move = next_move(game, engine.facts())
        return None if move is None else engine.command(move.action, move.arguments)

    def goal_parts(self) -> tuple[str, ...]:
        """The object, where it belongs, and what is done to it or how many there are."""
        _, game = self._playing()
        return parts_of(game)

    def mistaken_action(self, part: str) -> str | None:
        """The next action on a way to the goal with another `part`."""
        engine, game = self._playing()
        facts = engine.facts()
        other = mistaken(game, facts, part)
        move = None if other is None else next_move(other, facts)
        return None if move is None else engine.command(move.action, move.arguments)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            task_id = str(options["task_id"])
        else:
            listed = task_list.tasks(Split.TRAIN, self.options)
            task_id = listed[int(self.np_random.integers(len(listed)))].task_id
        self._game = task_list.game_of(task_id, self.options.wording)
        if self._engine is None:
            self._engine = Engine()
        welcome = self._engine.begin(self._game)
        # The first paragraph greets, the second is the room, the third repeats the goal.
        room = welcome.split("\n\n")[1] if self.options.show_goal else welcome
        return self._observe(self._game, room), self._info(self._engine, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        engine, game = self._playing()
        if engine.is_won:
            raise ResetNeeded("the episode is over; reset before the next step")
        words = " ".join(action.lower().split())
        accepted = words in engine.commands
        seen = engine.step(words) if accepted else NOTHING_HAPPENS
        won = engine.is_won
        info = self._info(engine, accepted=accepted)
        return self._observe(game, seen), float(won), won, False, info

    def render(self) -> NDArray[np.uint8]:
        engine, _ = self._playing()
        facts = engine.state_text().partition(" ")[2].replace("; ", "\n")
        return text_picture(f"{self._text}\n\n{facts}")

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = self._game = None

    def _playing(self) -> tuple[Engine, Game]:
        if self._engine is None or self._game is None:
            raise ResetNeeded("reset before the first step")
        return self._engine, self._game

    def _observe(self, game: Game, seen: str) -> str:
        self._text = f"Goal: {game.goal}\n{seen}" if self.options.show_goal else seen
        return self._text

    def _info(self, engine: Engine, *, accepted: bool) -> dict[str, Any]:
        won = engine.is_won
        return {
            "admissible_actions": [] if won else [c for c in engine.commands if c != "help"],
            "anchor_state": engine.state_text(),
            "success": won,
            "action_accepted": accepted,
        }
