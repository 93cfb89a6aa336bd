"""NumberLine's tasks: every pair of two different numbers on the line.

A task id is `MAX/START-TARGET`, e.g. `12/3-9`. All pairs are shared out by hash.
"""

import re
from dataclasses import dataclass
from functools import cache

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.cards.observing import refuse_unknown_observation, refuse_unknown_scoring
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import shared_out, stable_seed

__all__ = ["Line", "NumberLineOptions", "draw_line", "line_of", "source", "tasks"]

_TASK_ID = re.compile(r"([0-9]{1,3})/([0-9]{1,3})-([0-9]{1,3})")
_MIN_POSITION, _MAX_POSITION = 2, 100
WIDTH, HEIGHT = 422, 220
"""Of the picture, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLineOptions(PackagedOptions):
    """What can be chosen about NumberLine."""

    environment_id = "longhaul/NumberLine-v0"
    episodes_per_process = 16
    rules = ("observation", "scoring")

    max_position: int = 12
    """The highest number on the line, 2 to 100. Chooses tasks."""
    observation: str = "text"
    """`text`, or `image`: the numbers are seen in a picture alone. A rule."""
    scoring: str = "rl4vlm"
    """`rl4vlm`, the authors', or `verl-agent`: what names no action pays 0. A rule."""

    def __post_init__(self) -> None:
        refuse_unknown_observation(self.observation)
        refuse_unknown_scoring(self.scoring)
        if not _MIN_POSITION <= self.max_position <= _MAX_POSITION:
            raise ConfigError(
                f"max_position must be from {_MIN_POSITION} to {_MAX_POSITION}, got "
                f"{self.max_position}"
            )


@dataclass(frozen=True, slots=True)
class Line:
    """Where one begins, and where one has to go."""

    max_position: int
    start: int
    target: int


def tasks(split: Split, options: NumberLineOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, in order of hash."""
    return tuple(
        options.task(task_id, split, goal="bring the current number to the target")
        for task_id in _pairs(options.max_position)[split][:limit]
    )


def line_of(task_id: str) -> Line:
    """What a task id stands for.

    Raises:
        ValueError: No task has this id.
    """
    match = _TASK_ID.fullmatch(task_id)
    line = Line(*map(int, match.groups())) if match else Line(0, 0, 0)
    if line.start == line.target or max(line.start, line.target) > line.max_position:
        raise ValueError(
            f"no NumberLine task is called {task_id!r}; ids look like '12/3-9' (highest number, "
            "start, target)"
        )
    return line


def draw_line(options: NumberLineOptions, seed: int) -> Line:
    """One of all pairs; the same seed draws the same one."""
    every = [task_id for split in Split for task_id in _pairs(options.max_position)[split]]
    return line_of(every[stable_seed(f"number-line {seed}") % len(every)])


@cache
def _pairs(max_position: int) -> dict[Split, list[str]]:
    numbers = range(max_position + 1)
    return shared_out(
        f"{max_position}/{start}-{target}"
        for start in numbers
        for target in numbers
        if start != target
    )


def _prompt(options: NumberLineOptions) -> EnvironmentPrompt:
    where = "" if options.observation == "text" else " Both are in the picture."
    return EnvironmentPrompt(
        system=(
            "You bring the current number to the target. The action + adds one, the action - "
            f"takes one away.{where}"
        ),
        instruction="Which action comes next, + or -?",
    )


source = PackagedSource(
    NumberLineOptions,
    tasks,
    lambda options: options.description(
        summary="bring a number to a target by ones",
        prompt=_prompt(options),
        actions="`+` or `-`",
        shows_pictures=options.observation == "image",
        picture_pixels=WIDTH * HEIGHT,
    ),
)
