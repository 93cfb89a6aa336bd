"""ScienceWorld's tasks: a task's name and a variation of it, in the authors' splits.

A task id is `TASK/VARIATION`, e.g. `boil/14`: any instance can play any of them. The authors cut
the variations of each task, which are numbered by content (substance, place, parts), into train,
dev and test; the numbers stand here so that listing starts no Java, and a test compares them with
what the simulator answers.
"""

from dataclasses import dataclass

from longhaul_core.environment import EnvironmentDescription, EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.scienceworld.java import java_program
from longhaul_envs.task_lists import content_hash

__all__ = [
    "AGENTGYM_EXCLUDED",
    "CUTS",
    "SIMPLIFICATIONS",
    "TASK_IDS",
    "ScienceWorldOptions",
    "parse_task_id",
    "source",
    "tasks",
    "variations",
]


SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "selfWateringFlowerPots",
    "openContainers",
    "openDoors",
    "noElectricalAction",
)
"""The authors' words; `easy` is all the others."""

TASK_IDS = {
    "1-1": "boil",
    "1-2": "melt",
    "1-3": "freeze",
    "1-4": "change-the-state-of-matter-of",
    "2-1": "use-thermometer",
    "2-2": "measure-melting-point-known-substance",
    "2-3": "measure-melting-point-unknown-substance",
    "3-1": "power-component",
    "3-2": "power-component-renewable-vs-nonrenewable-energy",
    "3-3": "test-conductivity",
    "3-4": "test-conductivity-of-unknown-substances",
    "4-1": "find-living-thing",
    "4-2": "find-non-living-thing",
    "4-3": "find-plant",
    "4-4": "find-animal",
    "5-1": "grow-plant",
    "5-2": "grow-fruit",
    "6-1": "chemistry-mix",
    "6-2": "chemistry-mix-paint-secondary-color",
    "6-3": "chemistry-mix-paint-tertiary-color",
    "7-1": "lifespan-longest-lived",
    "7-2": "lifespan-shortest-lived",
    "7-3": "lifespan-longest-lived-then-shortest-lived",
    "8-1": "identify-life-stages-1",
    "8-2": "identify-life-stages-2",
    "9-1": "inclined-plane-determine-angle",
    "9-2": "inclined-plane-friction-named-surfaces",
    "9-3": "inclined-plane-friction-unnamed-surfaces",
    "10-1": "mendelian-genetics-known-plant",
    "10-2": "mendelian-genetics-unknown-plant",
}
"""The paper's number of each task to its name."""

AGENTGYM_EXCLUDED = ("5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2")
"""What AgentGym's server leaves out, by the paper's numbers."""

CUTS = {
    "boil": (14, 21, 30),
    "melt": (14, 21, 30),
    "freeze": (14, 21, 30),
    "change-the-state-of-matter-of": (14, 21, 30),
    "use-thermometer": (270, 405, 540),
    "measure-melting-point-known-substance": (218, 327, 436),
    "measure-melting-point-unknown-substance": (150, 225, 300),
    "power-component": (10, 15, 20),
    "power-component-renewable-vs-nonrenewable-energy": (10, 15, 20),
    "test-conductivity": (450, 675, 900),
    "test-conductivity-of-unknown-substances": (300, 450, 600),
    "find-living-thing": (150, 225, 300),
    "find-non-living-thing": (150, 225, 300),
    "find-plant": (150, 225, 300),
    "find-animal": (150, 225, 300),
    "grow-plant": (62, 93, 126),
    "grow-fruit": (62, 93, 126),
    "chemistry-mix": (16, 24, 32),
    "chemistry-mix-paint-secondary-color": (18, 27, 36),
    "chemistry-mix-paint-tertiary-color": (18, 27, 36),
    "lifespan-longest-lived": (62, 93, 125),
    "lifespan-shortest-lived": (62, 93, 125),
    "lifespan-longest-lived-then-shortest-lived": (62, 93, 125),
    "identify-life-stages-1": (6, 9, 14),
    "identify-life-stages-2": (4, 6, 10),
    "inclined-plane-determine-angle": (84, 126, 168),
    "inclined-plane-friction-named-surfaces": (692, 1038, 1386),
    "inclined-plane-friction-unnamed-surfaces": (80, 120, 162),
    "mendelian-genetics-known-plant": (60, 90, 120),
    "mendelian-genetics-unknown-plant": (240, 360, 480),
}
"""Where the train, dev and test variations of each task end."""

_PRESETS = {
    "all": tuple(CUTS),
    "agentgym": tuple(n for i, n in TASK_IDS.items() if i not in AGENTGYM_EXCLUDED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScienceWorldOptions(PackagedOptions):
    """What can be chosen about ScienceWorld."""

    environment_id = "longhaul/ScienceWorld-v0"
    episodes_per_process = 8
    rules = (
        "simplifications",
        "reward",
        "admissible",
        "show_objects",
        "anchor",
        "env_step_limit",
    )

    tasks: tuple[str, ...] = ("all",)
    """Names (`boil`) or the paper's numbers (`1-1`) of tasks, or a preset: `all`, or `agentgym`,
    the 23 that AgentGym's server has. Chooses tasks."""
    variations_per_task: int = 0
    """Most variations of each task and split, spread over them; 0 for all. Chooses tasks."""
    simplifications: tuple[str, ...] = ()
    """Of `SIMPLIFICATIONS`. A rule."""
    reward: str = "increments"
    """`increments`: what the best score so far rose by, at most 1 an episode; or `score`, the
    authors': the change of the score in points, -100 to 100. A rule."""
    admissible: str = "none"
    """`none`; or `valid`: what the simulator calls valid, some hundreds to ten thousand. A rule."""
    show_objects: bool = True
    """Whether observations name the objects that actions can take. A rule."""
    anchor: str = "state"
    """`state`, the world exactly; or `seen`: what looking around and the inventory show. A rule."""
    env_step_limit: int = 0
    """Moves after which the episode is truncated, the authors' `envStepLimit`; 0 for none.
    A rule."""

    def __post_init__(self) -> None:
        known = " or ".join(_PRESETS)
        for name in self.tasks:
            if name not in CUTS and name not in TASK_IDS and name not in _PRESETS:
                raise ConfigError(
                    f"tasks must be names or numbers of ScienceWorld's tasks, or {known}, got "
                    f"{name!r}; there are {', '.join(f'{i} {n}' for i, n in TASK_IDS.items())}"
                )
        if not self.tasks:
            raise ConfigError("tasks must name at least one task, got none")
        for word in self.simplifications:
            if word not in SIMPLIFICATIONS:
                raise ConfigError(
                    f"simplifications must be of {', '.join(SIMPLIFICATIONS)}, got {word!r}"
                )
        electrical = [n for n in self.names if "power-component" in n or "conductivity" in n]
        if electrical and {"easy", "noElectricalAction"}.intersection(self.simplifications):
            raise ConfigError(
                f"the simplifications easy and noElectricalAction take away the actions that "
                f"{electrical[0]} needs; choose other tasks, or list the other simplifications"
            )
        for name, values in (
            ("reward", ("increments", "score")),
            ("admissible", ("none", "valid")),
            ("anchor", ("state", "seen")),
        ):
            if getattr(self, name) not in values:
                raise ConfigError(
                    f"{name} must be {' or '.join(values)}, got {getattr(self, name)!r}"
                )
        for name in ("variations_per_task", "env_step_limit"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen tasks' names, in the paper's order."""
        wanted = {
            name
            for chosen in self.tasks
            for name in _PRESETS.get(chosen, (TASK_IDS.get(chosen, chosen),))
        }
        return tuple(name for name in CUTS if name in wanted)


def variations(name: str, split: Split) -> range:
    """The variations of a task in a split."""
    train, dev, test = CUTS[name]
    return {
        Split.TRAIN: range(train),
        Split.VALIDATION: range(train, dev),
        Split.TEST: range(dev, test),
    }[split]


def tasks(split: Split, options: ScienceWorldOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`: one variation of every task, then the next of each."""
    columns = {name: _spread(variations(name, split), options) for name in options.names}
    rounds = max(len(column) for column in columns.values())
    listed = [
        f"{name}/{column[n]}"
        for n in range(rounds)
        for name, column in columns.items()
        if n < len(column)
    ]
    return tuple(
        options.task(
            task_id, split, goal=task_id.split("/")[0].replace("-", " "), data_hash=_DATA_HASH
        )
        for task_id in listed[:limit]
    )


def parse_task_id(task_id: str) -> tuple[str, int]:
    """The task's name and the variation.

    Raises:
        ValueError: No task has this id.
    """
    name, _, number = task_id.partition("/")
    known = name in CUTS and number.isascii() and number.isdecimal()
    if not known or not int(number) < CUTS[name][-1]:
        raise ValueError(
            f"no ScienceWorld task is called {task_id!r}; ids look like 'boil/14' "
            "(task and variation)"
        )
    return name, int(number)


def _spread(numbers: range, options: ScienceWorldOptions) -> list[int]:
    count = options.variations_per_task
    if count == 0 or count >= len(numbers):
        return list(numbers)
    return [numbers[n * len(numbers) // count] for n in range(count)]


_DATA_HASH = content_hash(repr(sorted(CUTS.items())))


_PROMPT = EnvironmentPrompt(
    system=(
        "You carry out a science task in a house with several rooms and an outside. Time passes "
        "with every action. Name objects as observations do.\n"
        "Actions: look around; look at X; look in X; examine X; inventory; task; go to X; "
        "open X; close X; activate X; deactivate X; pick up X; put down X; move X to Y; "
        "pour X into Y; dunk X into Y; mix X; use X on Y; connect X to Y; disconnect X; read X; "
        "eat X; flush X; focus on X; wait; wait1.\n"
        "`focus on X` declares X to be what the task asks for: a wrong one ends the task. "
        "`wait` lets ten steps pass, `wait1` one. Where a name fits several things, answer with "
        "the number of the one you mean."
    ),
    instruction="What is the next action?",
)


def _describe(options: ScienceWorldOptions) -> EnvironmentDescription:
    java_program()  # raises where there is no Java runtime
    return options.description(
        summary="science experiments in a simulated house",
        prompt=_PROMPT,
        actions="a verb with objects as observations name them, such as `pick up thermometer`",
    )


source = PackagedSource(
    ScienceWorldOptions,
    tasks,
    _describe,
    needs=(("scienceworld", "scienceworld"),),
)
