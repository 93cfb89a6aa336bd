"""One game being played: TextWorld's interpreter and its record of facts and quests."""

import re
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longhaul_envs.extras import required
from longhaul_envs.textworld.games import CONTENT_FILE, GAME_FILE

__all__ = ["Game"]

_QUESTION_AT_THE_END = "Would you like to RESTART"
_QUESTION_OF_NAMES = "Which do you mean, "
"""Asked where one name is a part of another, such as `locker` of `type 0 locker`."""
_PROMPT = "\n>"
"""Begins the interpreter's line for typing, with its bar of room, score and moves."""
_TAKEN_FROM = re.compile(r"(take .+) from .+")

_lock = threading.Lock()
_idle: list[Any] = []
"""Interpreters of closed games: each has its own copy of a library that jericho never unloads, so
they are used again."""


class Game:
    """An interpreter, and the game in it."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._interpreter: Any = None
        self._state: Any = None
        self._content = ""
        self.commands: Mapping[str, str] = {}
        """What can be done, in small letters, to how the game spells it; sorted."""

    def begin(self, folder: Path) -> str:
        """Start the game that was built in `folder`; what is seen first.

        Raises:
            ConfigError: The extra is not installed.
        """
        if self._interpreter is None:
            self._interpreter = _taken()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jericho warns of every game that is not its own
            if self._interpreter is None:
                self._interpreter = _started(folder / GAME_FILE)
            else:
                self._interpreter.load(str(folder / GAME_FILE))
            self._take(self._interpreter.reset())
        self._content = (folder / CONTENT_FILE).read_text(encoding="utf-8")[:8]
        return str(self._state["description"]).strip()

    def step(self, command: str) -> str:
        """Do `command`; what comes of it, in words.

        The game's parser may ask which of two things is meant, and no answer would satisfy it.
        What was to be taken from one of them is then taken without naming the place.
        """
        seen = self._ask(command)
        taken = _TAKEN_FROM.fullmatch(command)
        if taken and seen.startswith(_QUESTION_OF_NAMES):
            return self._ask(taken[1])
        return seen

    @property
    def objective(self) -> str:
        """The goal in words; empty where the player is to find it out."""
        return str(self._state["objective"]).strip()

    @property
    def surroundings(self) -> str:
        """The room, and what is carried."""
        return f"{self._state['description']}\n{self._state['inventory']}".strip()

    @property
    def score(self) -> float:
        """The part of the highest score that is reached, from 0 to 1."""
        return float(self._state["score"]) / float(self._state["max_score"])

    @property
    def is_won(self) -> bool:
        """Whether every quest is done."""
        return bool(self._state["won"])

    @property
    def is_over(self) -> bool:
        """Whether it is won or lost."""
        return self.is_won or bool(self._state["lost"])

    @property
    def winning_actions(self) -> list[str]:
        """The way to win from here; empty if there is none."""
        return [str(command) for command in self._state["policy_commands"] or ()]

    def state_text(self) -> str:
        """Equal exactly when the game and its state are: its hash, its facts, the quests done."""
        facts = sorted(str(fact) for fact in self._state["_facts"])
        quests = self._state["_game_progression"].quest_progressions
        done = "".join("x" if q.failed else str(int(q.completed)) for q in quests)
        return f"{self._content} {'; '.join(facts)} | {done} {self._state['score']}"

    def close(self) -> None:
        """Give the interpreter back. Safe to call twice."""
        if self._interpreter is not None:
            with _lock:
                _idle.append(self._interpreter)
            self._interpreter = self._state = None

    def _ask(self, command: str) -> str:
        state, _, _ = self._interpreter.step(command)
        self._take(state)
        return str(state.feedback).partition(_QUESTION_AT_THE_END)[0].partition(_PROMPT)[0].strip()

    def _take(self, state: Any) -> None:  # noqa: ANN401
        self._state = state
        self.commands = {str(c).lower(): str(c) for c in state["admissible_commands"]}


def _taken() -> Any:  # noqa: ANN401
    with _lock:
        return _idle.pop() if _idle else None


def _started(file: Path) -> Any:  # noqa: ANN401
    textworld: Any = required("textworld", "textworld")
    infos = textworld.EnvInfos(
        admissible_commands=True,
        policy_commands=True,
        facts=True,
        won=True,
        lost=True,
        score=True,
        max_score=True,
        objective=True,
        description=True,
        inventory=True,
    )
    return textworld.start(str(file), infos)
