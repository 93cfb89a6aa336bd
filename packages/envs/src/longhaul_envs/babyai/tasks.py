"""BabyAI's tasks: a MiniGrid level and a seed.

A task id is `LEVEL/SEED`, e.g. `GoToLocal/00012`: any instance can play any of them. The
split of a level's seed is decided by a hash of what the seed builds (walls, objects, agent
and instruction), so no two splits share a start.
"""

from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import NamedTuple

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.agentgym import prompts
from longhaul_envs.babyai.levels import all_levels, expand
from longhaul_envs.babyai.world import World
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import (
    DEFAULT_NUM_TASKS,
    content_hash,
    procedural_tasks,
    release_of,
    rules_version,
)

__all__ = ["BabyAIOptions", "parse_task_id", "source", "tasks"]

_FORMS = ("longhaul", "agentgym")
_SEED_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BabyAIOptions(PackagedOptions):
    """What can be chosen about BabyAI."""

    environment_id = "longhaul/BabyAI-v0"
    episodes_per_process = 16
    rules = ("form", "actions", "remember", "time_penalty")

    levels: tuple[str, ...] = ("GoToLocal",)
    """MiniGrid's level names without `BabyAI-` and `-v0`, `all` that the bot solves, or `agentgym`:
    the 40 of AgentGym's server. Chooses tasks."""
    form: str = "longhaul"
    """`longhaul`, or `agentgym`: what AgentGym's server says, takes and pays. A rule."""
    actions: str = "high_level"
    """`high_level` or `primitive`. A rule."""
    remember: bool = True
    """Whether objects seen earlier stay in the observation and can be walked to. A rule."""
    time_penalty: bool = False
    """Pay MiniGrid's `1 - 0.9 * moves / limit` for success instead of 1. A rule."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", expand(self.levels))
        if self.actions not in ("high_level", "primitive"):
            raise ConfigError(f"actions must be high_level or primitive, got {self.actions!r}")
        if self.form not in _FORMS:
            raise ConfigError(f"form must be {' or '.join(_FORMS)}, got {self.form!r}")
        defaults = {field.name: field.default for field in fields(self)}
        for name in ("actions", "remember", "time_penalty"):
            if self.form == "agentgym" and getattr(self, name) != defaults[name]:
                raise ConfigError(
                    f"{name} = {getattr(self, name)!r} has no effect with form = 'agentgym'; leave "
                    "it out"
                )

    @property
    def version(self) -> str:
        """The value of `Task.version`, MiniGrid's own version included.

        It builds the world of a seed and decides what a move does; another release may do
        either differently.
        """
        base = f"1+minigrid={release_of('minigrid')}"
        return rules_version(base, self, rules=self.rules)


def tasks(split: Split, options: BabyAIOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, the levels taking turns."""
    wanted = DEFAULT_NUM_TASKS[split] if limit is None else limit
    per_level = -(-wanted // len(options.levels))
    lists = [_level_tasks(level, split, options, per_level) for level in options.levels]
    mixed = [task for turn in zip_longest(*lists) for task in turn if task is not None]
    return tuple(mixed[:wanted])


def parse_task_id(task_id: str) -> tuple[str, int]:
    """Level and seed.

    Raises:
        ValueError: No task has this id.
    """
    level, _, seed = task_id.partition("/")
    if level not in all_levels() or not seed.isdecimal():
        raise ValueError(
            f"no BabyAI task is called {task_id!r}; ids look like 'GoToLocal/00012' (level, seed)"
        )
    return level, int(seed)


def _level_tasks(level: str, split: Split, options: BabyAIOptions, limit: int) -> tuple[Task, ...]:
    world = World(level)

    def start_of(seed: int) -> _Start:
        if (level, seed) not in _STARTS:
            world.reset(seed)
            _STARTS[level, seed] = _Start(content_hash(world.layout()), world.mission)
        return _STARTS[level, seed]

    def task_of(seed: int) -> Task:
        task_id = f"{level}/{seed:0{_SEED_DIGITS}}"
        # several of AgentGym's levels ask for the same: goal and seed must tell them apart
        task_seed = None if options.form == "agentgym" else seed
        return options.task(task_id, split, goal=start_of(seed).mission, seed=task_seed)

    return procedural_tasks(
        split, limit=limit, content_of=lambda seed: start_of(seed).content, task_of=task_of
    )


class _Start(NamedTuple):
    content: str
    mission: str


_STARTS: dict[tuple[str, int], _Start] = {}
"""What each seed of a level was found to build; the three splits look at the same seeds."""


def _prompt(options: BabyAIOptions) -> EnvironmentPrompt:
    if options.form == "agentgym":
        return prompts.BABYAI
    if options.actions == "primitive":
        return EnvironmentPrompt(
            system=(
                "You move through rooms one cell at a time and reach the goal. You see only what "
                "is in front of you; turn to look around. `toggle` opens a door or box in front of "
                "you. Distances are in cells from you."
            ),
            instruction="What is the next action?",
            actions=(
                "Actions: `turn left`, `turn right`, `move forward`, `pick up`, `drop`, `toggle`."
            ),
        )
    return EnvironmentPrompt(
        system=(
            "You move through rooms and reach the goal. You see only what is in front of you; turn "
            "to look around. Distances are in cells from you."
        ),
        instruction="What is the next action?",
        actions=(
            "Actions: `go to red ball 1`, `pick up red ball 1`, `put down next to red ball 1`, "
            "`drop`, `open` and `close` with a door or box, `go through` with a door, by the names "
            "that you see; `move forward`, `turn left`, `turn right`."
        ),
    )


source = PackagedSource(
    BabyAIOptions,
    tasks,
    lambda options: options.description(
        summary="instructions in grid worlds seen in part, as text",
        prompt=_prompt(options),
        actions="one of the admissible actions, such as `go to a red ball`",
    ),
)
