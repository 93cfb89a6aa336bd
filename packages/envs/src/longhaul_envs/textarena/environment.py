"""A game of TextArena as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.pictures import text_picture
from longhaul_envs.text import text_space
from longhaul_envs.textarena import tasks as task_list
from longhaul_envs.textarena.game import Game

__all__ = ["TextArena"]

_MAX_ACTION_CHARACTERS = 4096
"""Some games are won by words."""


class TextArena(PackagedEnv[str, task_list.TextArenaOptions]):
    """Play a game of TextArena.

    Task:
        A game and a seed. In a game for two the agent is player 0, and the opponent draws each
        of its moves among the valid ones.
    Action:
        What the game's rules ask for, as a rule in square brackets, which may be left out.
    Reward:
        TextArena's, at the end: 1 for a win, -1 for a loss, what it gives in between.
    Episode end:
        Terminated when the game is over, which its limit of turns may be, or the second invalid
        move in a row. Never truncated here: the horizon belongs to the episode loop.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing. Without
        it the seed begins a game of whatever split.
    Info:
        `anchor_state`: the state of the game, hidden parts included. `success`: a reward of at
        least 1. `action_accepted`: False for an invalid move.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self.action_space = text_space(_MAX_ACTION_CHARACTERS)
        self._game: Game | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            number = task_list.seed_of(str(options["task_id"]), game=self.options.game)
        else:
            number = int(self.np_random.integers(2**31))
        self._game = Game(self.options.game, number)
        return self._game.text, self._info(self._game, accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._game is None or self._game.done:
            raise ResetNeeded("there is no game, or it is over; reset before the next step")
        accepted = self._game.play(action)
        return (
            self._game.text,
            self._game.reward,
            self._game.done,
            False,
            self._info(self._game, accepted=accepted),
        )

    def render(self) -> NDArray[np.uint8]:
        """What the agent sees, as a picture."""
        return text_picture("" if self._game is None else self._game.text)

    def _info(self, game: Game, *, accepted: bool) -> dict[str, Any]:
        return {
            "anchor_state": game.canonical(),
            "success": game.done and game.reward >= 1,
            "action_accepted": accepted,
        }
