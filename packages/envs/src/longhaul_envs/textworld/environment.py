"""TextWorld as a Gymnasium environment of text. Games and scores are TextWorld's."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_core.types import Split
from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.textworld import tasks as task_list
from longhaul_envs.textworld.game import Game
from longhaul_envs.textworld.games import built, game_folder

__all__ = ["TextWorld"]


class TextWorld(PackagedEnv[str, task_list.TextWorldOptions]):
    """Reach the goal of a text adventure.

    Task:
        A generated game: cook a meal, find a coin or a treasure, do an errand.
    Action:
        One of the admissible ones. Anything else changes nothing.
    Reward:
        The rise of the game's score, as a part of its highest: 1.0 over a won episode.
    Episode end:
        Terminated when the game is won, or lost (a burned meal). Never truncated here: the
        horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws one of the training tasks.
    Info:
        `admissible_actions`. `anchor_state`: the game's facts and what of its quests is done.
        `success`. `action_accepted`.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._game: Game | None = None
        self._text = ""

    def expert_action(self) -> str | None:
        """The next action of the game's winning policy; None where it cannot be won any more."""
        plan = self._playing().winning_actions
        return plan[0] if plan else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            task_id = str(options["task_id"])
        else:
            listed = task_list.tasks(Split.TRAIN, self.options)
            task_id = listed[int(self.np_random.integers(len(listed)))].task_id
        family, settings, game_seed = task_list.parse_task_id(task_id)
        if built(family, settings, [game_seed]) == [None]:
            raise ValueError(f"no TextWorld task is called {task_id!r}: its seed gives no game")
        if self._game is None:
            self._game = Game()
        seen = self._game.begin(game_folder(family, settings, game_seed))
        return self._observe(self._game, seen), self._info(self._game, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        game = self._playing()
        if game.is_over:
            raise ResetNeeded("the episode is over; reset before the next step")
        words = " ".join(action.lower().split())
        accepted = words in game.commands
        before = game.score
        seen = game.step(game.commands[words]) if accepted else "That is not possible."
        reward = game.score - before
        info = self._info(game, accepted=accepted)
        return self._observe(game, seen), reward, game.is_over, False, info

    def render(self) -> NDArray[np.uint8]:
        game = self._playing()
        return text_picture(f"{self._text}\n\nScore {game.score:.2f}\n{game.surroundings}")

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None

    def _playing(self) -> Game:
        if self._game is None:
            raise ResetNeeded("reset before the first step")
        return self._game

    def _observe(self, game: Game, seen: str) -> str:
        self._text = f"Goal: {game.objective or 'find out what is to be done'}\n{seen}"
        return self._text

    def _info(self, game: Game, *, accepted: bool) -> dict[str, Any]:
        return {
            "admissible_actions": [] if game.is_over else list(game.commands),
            "anchor_state": game.state_text(),
            "success": game.is_won,
            "action_accepted": accepted,
        }
