"""A game of TextArena with randomness of its own.

TextArena draws from Python's and NumPy's global generators. Here each game has states of both,
which are in place only while the game computes: games of one process do not disturb each other.
"""

import copy
import json
import random
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from longhaul_core.errors import ConfigError
from longhaul_envs.extras import required
from longhaul_envs.task_lists import stable_seed

__all__ = ["OPPONENTS", "Game", "known_games", "num_players"]

_NOT_STATE = {
    *("observations", "logs", "step_info", "role_mapping", "game_info", "rewards"),
    *("turn", "error_count", "made_invalid_move", "current_player"),
    *("state", "env_id", "entry_point"),
}
"""Attributes of a game and of its `State`: what was said and tried, and how often."""


def known_games() -> tuple[str, ...]:
    """Ids of TextArena's games, without those that only show an observation in another way.

    Raises:
        ConfigError: If `textarena` is not installed.
    """
    return tuple(name.removesuffix("-raw") for name in _registry() if name.endswith("-raw"))


def num_players(game: str) -> int:
    """1, or 2 where a fixed opponent is there.

    Raises:
        ConfigError: If TextArena has no such game, or it is for more players than that.
    """
    if game not in known_games():
        family = game.partition("-")[0]
        near = [name for name in known_games() if name.partition("-")[0] == family]
        raise ConfigError(
            f"TextArena has no game {game!r}; "
            + (f"there are {', '.join(near)}" if near else "its README lists the games")
        )
    if game.partition("-")[0] in OPPONENTS:
        return 2
    with _quiet_randomness():
        made = _made(game)
        try:
            made.reset(num_players=1, seed=0)
        except AssertionError as error:
            raise ConfigError(
                f"TextArena's {game!r} is not for one player ({error}); opponents are there for "
                f"{', '.join(OPPONENTS)}"
            ) from error
    return 1


class Game:
    """A game from its first turn to its end. The agent is player 0."""

    def __init__(self, game: str, seed: int) -> None:
        """Begin a game.

        Args:
            game: TextArena's id.
            seed: Of the game and of its opponent, at least 0.
        """
        self._candidates = OPPONENTS.get(game.partition("-")[0])
        self._opponent = random.Random(stable_seed(f"opponent {seed}"))
        self._opponent_seed = seed
        with _quiet_randomness():
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002  the generator that the games draw from
            self._env = _made(game)
            self._env.reset(num_players=1 if self._candidates is None else 2, seed=seed)
            self._randomness = _randomness()
        self._rules = ""
        self._board = ""
        self._news: list[str] = []
        self._listen()

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return bool(self._env.state.done)

    @property
    def text(self) -> str:
        """The rules, the board, and what happened since the agent's last move."""
        return "\n\n".join(part for part in (self._rules, self._board, *self._news) if part)

    @property
    def reward(self) -> float:
        """Of the agent: TextArena's, which it gives at the end; 0 before."""
        rewards = cast("Mapping[int, float] | None", self._env.state.rewards) or {}
        return float(rewards.get(0, 0.0)) if self.done else 0.0

    def play(self, action: str) -> bool:
        """Make the agent's move, and the opponent's; returns whether it was a valid one."""
        with self._own_randomness():
            self._env.step(action)
            valid = self._was_valid(self._env, player=0)
            while not self.done and self._env.state.current_player_id != 0:
                self._env.step(self._opponents_move())
        self._listen()
        return valid

    def canonical(self) -> str:
        """The state of the game, hidden parts included, without a count of turns."""
        kept = cast("dict[str, object]", {**vars(self._env), **vars(self._env.state)})
        facts = {name: value for name, value in kept.items() if name not in _NOT_STATE}
        if self._candidates is not None:
            facts["opponent"] = (self._opponent_seed, self._opponent.getstate()[1])
        return json.dumps(_plain(facts), sort_keys=True)

    def _listen(self) -> None:
        import textarena

        kinds = textarena.ObservationType
        heard = cast("dict[int, list[tuple[int, str, object]]]", self._env.state.observations)
        messages, heard[0] = heard[0], []
        self._news = []
        for sender, message, kind in messages:
            if kind is kinds.PROMPT:
                self._rules = message.strip()
            elif kind is kinds.GAME_BOARD:
                self._board = message.strip("\n")
            elif not (kind is kinds.PLAYER_ACTION and sender == 0):
                self._news.append(message.strip())
        if self.done:
            reason = self._env.state.game_info[0].get("reason")
            self._news.append(str(reason or "The game is over."))

    def _opponents_move(self) -> str:
        """A move that is drawn among those that the game accepts."""
        assert self._candidates is not None
        moves = self._candidates(self._env.state.game_state)
        self._opponent.shuffle(moves)
        for move in moves:
            before = _randomness()
            trial = copy.deepcopy(self._env)
            trial.step(move)
            _set_randomness(before)
            if self._was_valid(trial, player=1):
                return move
        raise RuntimeError(f"the opponent has no move in {self._env.state.game_state}")

    @staticmethod
    def _was_valid(env: Any, *, player: int) -> bool:  # noqa: ANN401  TextArena has no types
        return not env.state.error_count and not env.state.game_info[player]["invalid_move"]

    @contextmanager
    def _own_randomness(self) -> Generator[None]:
        with _quiet_randomness():
            _set_randomness(self._randomness)
            yield
            self._randomness = _randomness()


def _made(game: str) -> Any:  # noqa: ANN401  TextArena has no types
    """The game without the wrappers that shape its observations."""
    textarena = required("textarena", "textarena")
    made = textarena.make(f"{game}-raw")
    wrappers = cast("list[type] | None", _registry()[game].default_wrappers) or []
    if any(wrapper.__name__ == "ActionFormattingWrapper" for wrapper in wrappers):
        made.step = _bracketed(made.step)
    return made


def _registry() -> Mapping[str, Any]:
    return required("textarena.envs.registration", "textarena").ENV_REGISTRY


def _bracketed(step: Callable[[str], object]) -> Callable[[str], object]:
    """`step`, given `[4]` where `4` was written, as TextArena's own wrapper does."""

    def with_brackets(action: str) -> object:
        return step(action if "[" in action or "]" in action else f"[{action}]")

    return with_brackets


Randomness = tuple[object, Mapping[str, Any]]


def _randomness() -> Randomness:
    legacy = cast("Mapping[str, Any]", np.random.get_state(legacy=False))  # noqa: NPY002
    return random.getstate(), legacy


def _set_randomness(states: Randomness) -> None:
    random.setstate(cast("Any", states[0]))
    np.random.set_state(cast("Any", states[1]))  # noqa: NPY002


@contextmanager
def _quiet_randomness() -> Generator[None]:
    """Leave both global generators as they were."""
    before = _randomness()
    try:
        yield
    finally:
        _set_randomness(before)


def _plain(value: object) -> object:
    """JSON that is the same in every process, whatever a game keeps its state in."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _plain(cast("object", value.tolist()))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return sorted(([str(_plain(key)), _plain(one)] for key, one in pairs), key=str)
    if isinstance(value, set | frozenset):
        return sorted((_plain(one) for one in cast("set[object]", value)), key=str)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[object]", value)]
    if callable(value):
        return None
    if hasattr(value, "__dict__"):
        return [type(value).__name__, _plain(vars(value))]
    return type(value).__name__


def _cells(state: Mapping[str, Any]) -> list[str]:
    del state
    return [f"[{cell}]" for cell in range(9)]


def _columns(state: Mapping[str, Any]) -> list[str]:
    return [f"[col {column}]" for column in range(len(state["board"][0]))]


def _piles(state: Mapping[str, Any]) -> list[str]:
    piles = cast("list[int]", state["piles"])
    return [f"[{pile} {taken + 1}]" for pile, size in enumerate(piles) for taken in range(size)]


def _rolls(state: Mapping[str, Any]) -> list[str]:
    del state
    return ["[roll]", "[hold]"]


OPPONENTS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "ConnectFour": _columns,
    "Nim": _piles,
    "PigDice": _rolls,
    "TicTacToe": _cells,
}
"""By the family of a game for two: moves of which the opponent draws one that is valid."""
