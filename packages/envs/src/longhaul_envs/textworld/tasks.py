"""TextWorld's tasks: a family, its settings and a seed.

A task id is `FAMILY/SETTINGS/SEED`, e.g. `coin/level=10/7`: any instance can play any of them. A
cooking game's split is one of its settings, by which the generator divides foods and how they are
prepared; for the other families a hash of the game decides, which is built for that.
"""

from dataclasses import dataclass, fields

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import DEFAULT_NUM_TASKS, procedural_tasks
from longhaul_envs.textworld.games import Settings, built, settings_text

__all__ = ["FAMILIES", "TextWorldOptions", "parse_task_id", "source", "tasks"]


FAMILIES = {
    "cooking": ("recipe", "take", "go", "open", "cook", "cut", "drop"),
    "simple": ("rewards", "goal"),
    "coin": ("level",),
    "treasure": ("level",),
    "custom": ("world_size", "nb_objects", "quest_length", "theme"),
}
"""Each family to the options that are its settings, as `tw-make` names them."""

_COOKING_SPLITS = {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test"}
_BUILT_TASKS = {Split.TRAIN: 64, Split.VALIDATION: 16, Split.TEST: 16}
_BATCH = 8
"""Games that one process builds, since it takes seconds to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWorldOptions(PackagedOptions):
    """What can be chosen about TextWorld. All of it chooses tasks."""

    environment_id = "longhaul/TextWorld-v0"
    episodes_per_process = 4

    family: str = "cooking"
    """One of `FAMILIES`."""
    recipe: int = 1
    """Cooking: ingredients, 1 to 5."""
    take: int = 1
    """Cooking: ingredients that are not carried from the start, 0 to `recipe`."""
    go: int = 6
    """Cooking: rooms, 1, 6, 9 or 12."""
    open: bool = True
    """Cooking: whether containers and doors are closed."""
    cook: bool = True
    """Cooking: whether ingredients must be cooked."""
    cut: bool = True
    """Cooking: whether ingredients must be cut."""
    drop: bool = False
    """Cooking: whether only few things can be carried."""
    rewards: str = "dense"
    """Simple: `dense`, `balanced` or `sparse`."""
    goal: str = "detailed"
    """Simple: `detailed`, `brief` or `none`: how much the goal says."""
    level: int = 10
    """Coin, 1 to 300, and treasure, 1 to 30: the authors' difficulty."""
    world_size: int = 5
    """Custom: rooms, 1 to 50."""
    nb_objects: int = 10
    """Custom: things, 1 to 100."""
    quest_length: int = 5
    """Custom: actions that the quest takes, 1 to 30."""
    theme: str = "house"
    """Custom: `house` or `basic`, how places and things are called."""
    num_train_games: int = -1
    """Games to train on; -1 for 1,024 of cooking, and 64 of the others, which are built to be
    listed."""
    num_eval_games: int = -1
    """Games to validate on and to test on, each; -1 for 256 of cooking, and 16 of the others."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ConfigError(f"family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        for field in fields(self):
            own = [family for family, names in FAMILIES.items() if field.name in names]
            changed = getattr(self, field.name) != field.default
            if own and changed and self.family not in own:
                raise ConfigError(
                    f"{field.name} is an option of the family {' and '.join(own)}, not of "
                    f"{self.family}"
                )
        for name, low, high in (
            ("recipe", 1, 5),
            ("take", 0, self.recipe),
            ("level", 1, 30 if self.family == "treasure" else 300),
            ("world_size", 1, 50),
            ("nb_objects", 1, 100),
            ("quest_length", 1, 30),
        ):
            if not low <= getattr(self, name) <= high and name in FAMILIES[self.family]:
                raise ConfigError(f"{name} must be from {low} to {high}, got {getattr(self, name)}")
        for name, values in (
            ("go", (1, 6, 9, 12)),
            ("rewards", ("dense", "balanced", "sparse")),
            ("goal", ("detailed", "brief", "none")),
            ("theme", ("house", "basic")),
        ):
            if getattr(self, name) not in values:
                raise ConfigError(
                    f"{name} must be one of {', '.join(map(str, values))}, got "
                    f"{getattr(self, name)!r}"
                )
        for name in ("num_train_games", "num_eval_games"):
            if getattr(self, name) < 1 and getattr(self, name) != -1:
                raise ConfigError(f"{name} must be at least 1, or -1, got {getattr(self, name)}")

    def settings(self, split: Split) -> Settings:
        """What the generator is told, besides the seed."""
        chosen: dict[str, int | str | bool] = {
            name: getattr(self, name) for name in FAMILIES[self.family]
        }
        if self.family == "cooking":
            chosen["split"] = _COOKING_SPLITS[split]
        return chosen

    def num_games(self, split: Split) -> int:
        """Games of a split."""
        number = self.num_train_games if split is Split.TRAIN else self.num_eval_games
        if number != -1:
            return number
        return (DEFAULT_NUM_TASKS if self.family == "cooking" else _BUILT_TASKS)[split]


def tasks(split: Split, options: TextWorldOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, by seed. Games but cooking's are built for it."""
    settings = options.settings(split)
    most = min(filter(None, (options.num_games(split), limit)))

    def task_of(seed: int) -> Task:
        task_id = f"{options.family}/{settings_text(settings)}/{seed}"
        return options.task(task_id, split, goal=options.family)

    if options.family == "cooking":
        return tuple(task_of(seed) for seed in range(most))
    contents: dict[int, str | None] = {}

    def content_of(seed: int) -> str | None:
        if seed not in contents:
            batch = range(seed, seed + _BATCH)
            contents.update(zip(batch, built(options.family, settings, batch), strict=True))
        return contents[seed]

    return procedural_tasks(split, limit=most, content_of=content_of, task_of=task_of)


def parse_task_id(task_id: str) -> tuple[str, Settings, int]:
    """Family, settings and seed.

    Raises:
        ValueError: No task has this id.
    """
    problem = ValueError(
        f"no TextWorld task is called {task_id!r}; ids look like 'coin/level=10/7' (family, "
        "settings, seed)"
    )
    parts = task_id.split("/")
    if len(parts) != 3 or parts[0] not in FAMILIES or not _is_number(parts[2]):
        raise problem
    family, words, seed = parts
    given: dict[str, int | str | bool] = {}
    for word in words.split(","):
        name, equals, value = word.partition("=")
        given[name] = (int(value) if _is_number(value) else value) if equals else True
    split = next((s for s, n in _COOKING_SPLITS.items() if n == given.get("split")), Split.TRAIN)
    chosen = {name: given.get(name, False) for name in FAMILIES[family]}
    try:
        settings = TextWorldOptions(family=family, **chosen).settings(split)  # pyright: ignore[reportArgumentType]  checked there
    except (ConfigError, TypeError) as error:
        raise problem from error
    if settings_text(settings) != words:
        raise problem
    return family, settings, int(seed)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


_PROMPT = EnvironmentPrompt(
    system=(
        "You play a text adventure in a house. Walk between rooms, open doors and containers, take "
        "and use things, and reach the goal. What you do not see may be in another room or in "
        "something closed."
    ),
    instruction="What is the next action?",
)


source = PackagedSource(
    TextWorldOptions,
    tasks,
    lambda options: options.description(
        summary="text adventures made of a seed: cooking, coins, treasure, errands",
        prompt=_PROMPT,
        actions="one of the admissible actions, such as `open fridge`",
    ),
    needs=(("textworld", "textworld"),),
)
