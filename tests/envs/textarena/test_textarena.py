"""TextArena: what is seen of its games, what counts, and that they do not disturb each other."""

import random
from itertools import pairwise

import numpy as np
import pytest

from longhaul_core.errors import ConfigError
from longhaul_core.types import Split
from longhaul_envs.textarena.environment import TextArena
from longhaul_envs.textarena.game import Game
from longhaul_envs.textarena.games import main, why_not
from longhaul_envs.textarena.tasks import source


def test_a_number_is_found_by_the_hints() -> None:
    environment = TextArena(game="GuessTheNumber-v0-hardcore")
    task = environment.tasks(Split.TEST)[0]
    text, _ = environment.reset(options={"task_id": task.task_id})
    low, high, done, rewards = 1, 50, False, list[float]()
    info: dict[str, object] = {}
    assert f"between {low} and {high}" in text

    while not done:
        guess = (low + high) // 2
        text, reward, done, truncated, info = environment.step(f"[{guess}]")
        rewards.append(reward)
        assert not truncated
        if text.endswith("lower."):
            high = guess - 1
        else:
            low = guess + 1

    assert info["success"]
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_a_second_invalid_move_in_a_row_ends_the_game() -> None:
    environment = TextArena(game="Mastermind-v0")
    environment.reset(seed=1)

    text, _, done, _, info = environment.step("none of your business")
    assert "invalid move" in text
    assert (done, info["action_accepted"]) == (False, False)
    *_, info = environment.step("1 2 3 4")  # brackets may be left out
    assert info["action_accepted"]
    environment.step("")
    _, reward, done, _, info = environment.step("")
    assert (done, info["success"], info["action_accepted"]) == (True, False, False)
    assert reward < 1


def played(game: Game, moves: list[str]) -> list[tuple[str, float, str]]:
    seen = [(game.text, game.reward, game.canonical())]
    for move in moves:
        if not game.done:
            game.play(move)
            seen.append((game.text, game.reward, game.canonical()))
    return seen


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("2048-v0", ["[left]", "[up]", "[right]", "[down]"] * 3),
        ("TicTacToe-v0", [f"[{cell}]" for cell in range(9)]),
        ("Sokoban-v0", ["[up]", "[left]", "[down]"]),  # made with NumPy's global generator
    ],
)
def test_games_of_one_process_do_not_disturb_each_other(name: str, moves: list[str]) -> None:
    alone = played(Game(name, 5), moves)

    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    before = random.getstate(), np.random.random()  # noqa: NPY002
    np.random.seed(99)  # noqa: NPY002
    game, neighbour = Game(name, 5), Game(name, 6)
    beside = [(game.text, game.reward, game.canonical())]
    for move in moves:
        if not neighbour.done:
            neighbour.play(move)
        if not game.done:
            game.play(move)
            beside.append((game.text, game.reward, game.canonical()))

    assert beside == alone
    assert (random.getstate(), np.random.random()) == before  # noqa: NPY002


def test_an_opponent_makes_valid_moves_and_wins_and_loses() -> None:
    rewards: list[float] = []
    for seed in range(30):
        game = Game("TicTacToe-v0", seed)
        for cell in ("4", "0", "8", "2", "6", "1", "7", "3", "5"):
            if not game.done:
                game.play(cell)
        rewards.append(game.reward)

    assert {-1.0, 1.0} <= set(rewards) <= {-1.0, 0.0, 1.0}
    assert played(Game("TicTacToe-v0", 3), ["4"]) == played(Game("TicTacToe-v0", 3), ["4"])
    replies = {played(Game("TicTacToe-v0", seed), ["4"])[-1][0] for seed in range(20)}
    assert len(replies) > 3


def test_tasks_begin_differently_and_name_the_release() -> None:
    numbers = source({"game": "GuessTheNumber-v0"})
    lists = [numbers.tasks(split) for split in Split]

    assert sum(map(len, lists)) == 20  # as many as there are numbers
    assert numbers.describe().version.startswith("1+textarena=")
    assert {task.version for tasks in lists for task in tasks} == {numbers.describe().version}
    seeds = [task.seed for task in lists[0]]
    assert all(one < other for one, other in pairwise(seeds))


def test_a_game_that_begins_in_one_state_has_nothing_to_test_on() -> None:
    source_of_one = source({"game": "Countdown-v0"})

    with pytest.raises(ConfigError, match="'Countdown-v0' begins in too few states"):
        for split in Split:
            source_of_one.tasks(split)


def test_games_that_cannot_be_played_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no game 'Nim-v9'; there are Nim-v0, Nim-v0-medium"):
        source({"game": "Nim-v9"})
    with pytest.raises(ConfigError, match="'Othello-v0' is not for one player"):
        source({"game": "Othello-v0"})


def test_the_program_says_which_games_can_be_played() -> None:
    assert why_not("Bandit-v0") is None
    assert why_not("Countdown-v0") == "12 seeds give 1 different starts"
    assert list(main("Nim-v0-l")) == [
        "Nim-v0-large: playable, two players",
        "1 of 1 games can be played",
    ]
