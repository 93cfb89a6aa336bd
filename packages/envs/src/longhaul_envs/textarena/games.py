"""Which of TextArena's games can be played here, as a program that tries each of them.

`python -m longhaul_envs.textarena.games` tries all, `… games Wordle` those whose id begins so.
"""

import sys
from collections.abc import Iterator

from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.text import shortened
from longhaul_core.types import Split
from longhaul_envs.textarena.game import OPPONENTS, Game, known_games, num_players

__all__ = ["main", "why_not"]

_NUM_SEEDS = 12
_SHOWN_CHARACTERS = 200
_NONSENSE = ("", "   ", "[xyzzy 12]", "ä漢\u0000\n<action>", "a" * 5000)


def why_not(game: str) -> str | None:
    """Why `game` cannot be played as a task; None if it can.

    It can if it begins in at least three states, begins in the same state each time a seed is
    given, begins with a text, and answers nonsense without an exception and without a win.
    """
    try:
        with attributed_to(EnvironmentFailure, "its first turn"):
            players = num_players(game)
            first = [Game(game, seed) for seed in range(_NUM_SEEDS)]
            again = [Game(game, seed) for seed in range(_NUM_SEEDS)]
        if not all(game.text for game in first):
            return "it begins without a text"
        starts = [(game.text, game.canonical()) for game in first]
        if starts != [(game.text, game.canonical()) for game in again]:
            return "a seed does not decide how it begins"
        if players == 1 and len(set(starts)) < len(Split):
            return f"{_NUM_SEEDS} seeds give {len(set(starts))} different starts"
        with attributed_to(EnvironmentFailure, "nonsense"):
            for seed, action in enumerate(_NONSENSE):
                played = Game(game, seed)
                played.play(action)
                if played.done and played.reward >= 1:
                    return f"it is won by {action[:20]!r}"
    except (ConfigError, EnvironmentFailure) as failure:
        return shortened(" ".join(str(failure).split()), _SHOWN_CHARACTERS)
    return None


def main(prefix: str = "") -> Iterator[str]:
    """A line for each game whose id begins with `prefix`, and a count."""
    num_playable = 0
    games = [game for game in known_games() if game.startswith(prefix)]
    for game in games:
        why = why_not(game)
        num_playable += why is None
        players = "two players" if game.partition("-")[0] in OPPONENTS else "one player"
        yield f"{game}: {f'playable, {players}' if why is None else why}"
    yield f"{num_playable} of {len(games)} games can be played"


if __name__ == "__main__":
    for line in main(*sys.argv[1:2]):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
