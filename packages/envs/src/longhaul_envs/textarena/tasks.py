"""TextArena's tasks: a game and a seed.

A task id is `GAME/SEED`, e.g. `Mastermind-v0/00012`. The split is decided by a hash of the state
that the game begins in, hidden parts included; against an opponent, of the seed that it draws by.
"""

from dataclasses import dataclass

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import procedural_tasks, release_of
from longhaul_envs.textarena.game import OPPONENTS, Game, num_players

__all__ = ["DEFAULT_GAME", "TextArenaOptions", "seed_of", "source", "tasks"]

DEFAULT_GAME = "Mastermind-v0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArenaOptions(PackagedOptions):
    """What can be chosen about TextArena."""

    environment_id = "longhaul/TextArena-v0"
    episodes_per_process = 16

    game: str = DEFAULT_GAME
    """TextArena's id of a game, without the `-raw` or `-train` of other observations."""

    def __post_init__(self) -> None:
        num_players(self.game)

    @property
    def version(self) -> str:
        """The value of `Task.version`: the rules are those of TextArena's release."""
        return f"1+textarena={release_of('textarena')}+game={self.game}"


def tasks(split: Split, options: TextArenaOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, by seed; each seed that is looked at begins a game.

    Raises:
        ConfigError: If no seed's game falls into `split`, since it begins in too few states.
    """
    family = options.game.partition("-")[0]

    def content_of(seed: int) -> str:
        return f"opponent {seed}" if family in OPPONENTS else Game(options.game, seed).canonical()

    def task_of(seed: int) -> Task:
        return options.task(
            f"{options.game}/{seed:05}", split, goal=f"win {options.game}", seed=seed
        )

    found = procedural_tasks(split, limit=limit, content_of=content_of, task_of=task_of)
    if not found and limit != 0:
        raise ConfigError(
            f"TextArena's {options.game!r} begins in too few states to fill the split "
            f"{split.value!r}; choose another game"
        )
    return found


def seed_of(task_id: str, *, game: str) -> int:
    """The seed of a task.

    Raises:
        ValueError: No task of `game` has this id.
    """
    name, _, seed = task_id.rpartition("/")
    if name != game or not (seed.isascii() and seed.isdigit()):
        raise ValueError(f"no task of {game} is called {task_id!r}; ids look like '{game}/00012'")
    return int(seed)


_PROMPT = EnvironmentPrompt(
    system="You play a game. You see its rules, what is on the board, and what happened last.",
    instruction="What is your move?",
)


source = PackagedSource(
    TextArenaOptions,
    tasks,
    lambda options: options.description(
        summary=f"TextArena's {options.game}",
        prompt=_PROMPT,
        actions="what the game's rules ask for",
    ),
)
