"""Wordle as a Gymnasium environment of text."""

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from longhaul_envs.packaged import PackagedEnv
from longhaul_envs.wordle import tasks as task_list
from longhaul_envs.wordle.drawing import board_picture
from longhaul_envs.wordle.expert import next_guess
from longhaul_envs.wordle.tasks import NUM_GUESSES
from longhaul_envs.wordle.words import marks, word_list

__all__ = ["Wordle"]

_GOAL = "Goal: find the word of five letters"


class Wordle(PackagedEnv[str, task_list.WordleOptions]):
    """Find a word of five letters in six guesses.

    Task:
        A common English word.
    Action:
        A word of the list, in letters of either size, with spaces between them or none. Anything
        else uses up a guess as well.
    Reward:
        By the option `reward`: `found` pays 1 for the guess that is the word; `guesses` takes 1
        off for every other guess.
    Episode end:
        Terminated when the word is found, or after six guesses.
    Seed:
        `options={"task_id": ...}` chooses the task, and the seed then decides nothing.
        Without it the seed draws a word of whatever split.
    Info:
        `admissible_actions` is missing: a list of thousands of words is no help. `anchor_state`:
        the task, and the guesses that were words. `success`. `action_accepted`: False for what is
        no word of the list.
    """

    packaged = task_list.source

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  those of the source
        super().__init__(**options)
        self._words = word_list(self.options.words)
        self._answer = ""
        self._guesses: list[str] = []
        """Each in small letters; empty where it was no word."""
        self._is_over = True

    def expert_action(self) -> str:
        """The guess that tells most of the answers still possible."""
        told = [(guess, marked) for guess, marked in self._told() if guess]
        return next_guess(self._words, told, guesses_left=NUM_GUESSES - len(self._guesses))

    def goal_parts(self) -> tuple[str, ...]:
        """The word."""
        return ("word",)

    def mistaken_action(self, part: str) -> str | None:
        """The expert's guess, or another word in place of the answer."""
        guess = self.expert_action()
        if guess != self._answer:
            return guess
        return next(word for word in self._words.answers if word != guess)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None and "task_id" in options:
            self._answer = task_list.answer_of(str(options["task_id"]), self._words)
        else:
            self._answer = task_list.draw_answer(self._words, int(self.np_random.integers(2**31)))
        self._guesses, self._is_over = [], False
        return self._observe(), self._info(accepted=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._is_over:
            raise ResetNeeded("there is no episode, or it is over; reset before the next step")
        guess = "".join(action.lower().split())
        is_word = guess in self._words.known
        self._guesses.append(guess if is_word else "")
        self._is_over = self._is_found() or len(self._guesses) == NUM_GUESSES
        if self.options.reward == "found":
            reward = float(self._is_found())
        else:
            reward = 0.0 if self._is_found() else -1.0
        said = "" if is_word else "That is no word of the list: a guess is used up"
        return self._observe(said), reward, self._is_over, False, self._info(accepted=is_word)

    def render(self) -> NDArray[np.uint8]:
        """The board: (378, 316, 3), red, green and blue."""
        return board_picture(self._told(), NUM_GUESSES)

    def _is_found(self) -> bool:
        return self._guesses[-1:] == [self._answer]

    def _told(self) -> list[tuple[str, str]]:
        return [(guess, marks(guess, self._answer) if guess else "") for guess in self._guesses]

    def _observe(self, said: str = "") -> str:
        lines = [_GOAL]
        for guess, marked in self._told():
            lines += [" ".join(guess), " ".join(marked)] if guess else ["(no word)"]
        if self._is_over:
            lines.append("You found it" if self._is_found() else "You have no guess left")
        else:
            lines.append(f"Guesses left: {NUM_GUESSES - len(self._guesses)}")
        return "\n".join([*lines, *filter(None, [said])])

    def _info(self, *, accepted: bool) -> dict[str, Any]:
        return {
            "anchor_state": f"{self._answer}: {' '.join(filter(None, self._guesses))}",
            "success": self._is_found(),
            "action_accepted": accepted,
        }
