"""ALFWorld's tasks: games of the release, or games made of a seed.

A task id is `generated/FAMILIES/SEED`, e.g. `generated/146/00012` (the numbers of the authors' task
types that the seed chooses among), or the folder of a released game. Any instance can play any.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.alfworld import released
from longhaul_envs.alfworld.game import Game, wheel_domain, wheel_grammar
from longhaul_envs.alfworld.rooms import FAMILIES, make_start, split_of_start
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import (
    DEFAULT_NUM_TASKS,
    content_hash,
)

__all__ = ["ALFWorldOptions", "family_of", "game_of", "source", "tasks"]

_GENERATED = re.compile(r"generated/([1-6]{1,6})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ALFWorldOptions(PackagedOptions):
    """What can be chosen about ALFWorld."""

    environment_id = "longhaul/ALFWorld-v0"
    episodes_per_process = 4
    rules = ("show_goal", "wording")

    games: str = "generated"
    """`generated`, without a download; or `released`, the authors'. Chooses tasks."""
    task_types: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    """By the authors' numbers: 1 pick and place, 2 look in light, 3 clean, 4 heat, 5 cool, 6 pick
    two. Chooses tasks."""
    num_train_games: int = -1
    """Games to train on, as the authors' setting: -1 for all that were released, or 1,024 generated
    ones. Chooses tasks."""
    num_eval_games: int = -1
    """Games to validate on and to test on, each; -1 for all, or 256. Chooses tasks."""
    show_goal: bool = True
    """Whether every observation begins with the goal; otherwise the authors' text alone, which
    names it once. A rule."""
    wording: str = "current"
    """`current`, the installed alfworld's (`move X to Y`); or `released`, that of the game files
    (`put X in/on Y`). A rule."""

    def __post_init__(self) -> None:
        if self.games not in ("generated", "released"):
            raise ConfigError(f"games must be generated or released, got {self.games!r}")
        if not self.task_types or not set(self.task_types) <= set(range(1, 7)):
            raise ConfigError(
                f"task_types must be numbers from 1 to 6, at least one, got {list(self.task_types)}"
            )
        for name in ("num_train_games", "num_eval_games"):
            if getattr(self, name) < 1 and getattr(self, name) != -1:
                raise ConfigError(f"{name} must be at least 1, or -1, got {getattr(self, name)}")
        if self.wording not in ("current", "released"):
            raise ConfigError(f"wording must be current or released, got {self.wording!r}")
        if self.wording == "released" and self.games == "generated":
            raise ConfigError(
                'wording = "released" is that of the game files; generated games have none'
            )

    @property
    def families(self) -> tuple[str, ...]:
        """The chosen task types by name, in the authors' order."""
        return tuple(FAMILIES[number - 1] for number in sorted(set(self.task_types)))

    def num_games(self, split: Split) -> int | None:
        """Games of a split; None for all that there are."""
        number = self.num_train_games if split is Split.TRAIN else self.num_eval_games
        if number == -1:
            return DEFAULT_NUM_TASKS[split] if self.games == "generated" else None
        return number


def tasks(split: Split, options: ALFWorldOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: generated ones by seed, released ones by id.

    Raises:
        ConfigError: Released games are wanted and not there.
    """
    listing = _released if options.games == "released" else _generated
    most = options.num_games(split)
    return tuple(islice(islice(listing(split, options), most), limit))


def game_of(task_id: str, wording: str) -> Game:
    """The game that a task id stands for.

    Raises:
        ConfigError: It is a released one, and there are none here.
        ValueError: No task has this id.
    """
    match = _GENERATED.fullmatch(task_id)
    if match is not None:
        start = make_start(tuple(FAMILIES[int(n) - 1] for n in match[1]), int(match[2]))
        return Game(
            family=start.family,
            target=start.target.lower(),
            destination=start.destination.lower(),
            goal=start.goal,
            domain=wheel_domain(),
            grammar=wheel_grammar(),
            problem=start.problem(),
        )
    if task_id.split("/")[0] not in released.SPLITS.values():
        raise ValueError(
            f"no ALFWorld task is called {task_id!r}; ids look like 'generated/123456/00012' (task "
            "types and seed), or are the folder of a released game, 'valid_seen/…/trial_…'"
        )
    return released.read_game(task_id, wording)


def family_of(task: Task) -> str:
    """The errand of a task, one of `rooms.FAMILIES`."""
    return game_of(task.task_id, "current").family


def _generated(split: Split, options: ALFWorldOptions) -> Iterator[Task]:
    numbers = "".join(str(FAMILIES.index(family) + 1) for family in options.families)
    seen: set[str] = set()
    for seed in count():
        start = make_start(options.families, seed)
        if split_of_start(start) is not split or start.content in seen:
            continue
        seen.add(start.content)
        yield options.task(f"generated/{numbers}/{seed:05}", split, goal=start.goal, seed=seed)


def _released(split: Split, options: ALFWorldOptions) -> Iterator[Task]:
    for game_id, _ in released.games(split, options.families):
        game = released.read_game(game_id, options.wording)
        yield options.task(
            game_id, split, goal=game.goal, data_hash=content_hash(f"{game.goal}\n{game.problem}")
        )


def _prompt(options: ALFWorldOptions) -> EnvironmentPrompt:
    put = "move X to R" if options.wording == "current" else "put X in/on R"
    return EnvironmentPrompt(
        system=(
            "You do an errand in a room of a house. Things lie on or in receptacles: go to one to "
            "see what is on it, and open it first if it is closed. You can carry one thing. Heat "
            "with a microwave, cool with a fridge, clean at a sinkbasin.\n"
            f"Actions: go to R; open R; close R; take X from R; {put}; heat X with R; "
            "cool X with R; clean X with R; use X; examine X; examine R; look; inventory."
        ),
        instruction="What is the next action?",
    )


source = PackagedSource(
    ALFWorldOptions,
    tasks,
    lambda options: options.description(
        summary="household errands in rooms that are seen one receptacle at a time",
        prompt=_prompt(options),
        actions="one of the admissible actions, such as `go to fridge 1`",
    ),
    needs=(("alfworld", "alfworld"), ("fast_downward", "alfworld")),
)
