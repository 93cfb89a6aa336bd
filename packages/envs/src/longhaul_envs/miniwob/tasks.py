"""MiniWoB++'s tasks: the name of a page and a seed.

A task id is `NAME/SEED`, e.g. `click-button/00012`. What a seed makes of a page is known without a
browser from `contents.txt`: a hash of the instruction and of the document that it begins with. The
split is decided by that hash, and equal contents are listed once, so that no test task is a
training task under another seed. `python -m longhaul_envs.miniwob.contents` writes the file.
"""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from longhaul_core.environment import EnvironmentPrompt
from longhaul_core.errors import ConfigError
from longhaul_core.types import Split, Task
from longhaul_envs.miniwob.page import HEIGHT, WIDTH
from longhaul_envs.packaged import PackagedOptions, PackagedSource
from longhaul_envs.task_lists import content_hash, rules_version, split_of

__all__ = [
    "EXCLUDED",
    "MiniWoBOptions",
    "known_contents",
    "parse_task_id",
    "source",
    "tasks",
]

_CONTENTS = Path(__file__).parent / "contents.txt"
_FIRST_LINE = "miniwob "

EXCLUDED: Mapping[str, str] = {
    "flight.AA": "a whole airline site in a frame, with a server of its own",
    "flight.Alaska": "a whole airline site in a frame, with a server of its own",
    "flight.Alaska-auto": "a whole airline site in a frame, with a server of its own",
    "button-delay": "asks for clicks at a moment; not registered by the package",
    "chase-circle": "asks to follow what moves; not registered by the package",
    "hover-shape": "asks to follow what changes; not registered by the package",
    "moving-items": "asks to catch what moves; not registered by the package",
    "simon-says": "asks to watch what flashes; not registered by the package",
}
"""Pages of the package that are not played, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniWoBOptions(PackagedOptions):
    """What can be chosen about MiniWoB++."""

    environment_id = "longhaul/MiniWoB-v0"
    episodes_per_process = 4
    rules = ("observation", "reward", "threshold", "time_limit")

    tasks: tuple[str, ...] = ()
    """Names of pages, such as `click-button`; empty for all. They take turns. Chooses tasks."""
    observation: str = "tree"
    """`tree`, or `tree_and_image`: with a picture of the page. A rule."""
    reward: str = "binary"
    """`binary`: 1 for success. `page`: the page's own in [-1, 1], partial ones too. A rule."""
    threshold: float = 1.0
    """What the page's own reward reaches in a success, above 0 and up to 1. A rule."""
    time_limit: bool = False
    """Let the page end an episode at its limit, and take off for time as the authors do. A step
    takes a second of the page's clock. A rule."""
    chromium: str = ""
    """Path of Chromium; empty to look for it. Changes nothing of an episode."""

    def __post_init__(self) -> None:
        contents = known_contents()
        for name in self.tasks:
            if name in EXCLUDED:
                raise ConfigError(f"MiniWoB++ task {name!r} is not played: {EXCLUDED[name]}")
            if name not in contents:
                raise ConfigError(f"no MiniWoB++ task is called {name!r}; try 'click-button'")
        if self.observation not in ("tree", "tree_and_image"):
            raise ConfigError(
                f"observation must be tree or tree_and_image, got {self.observation!r}"
            )
        if self.reward not in ("binary", "page"):
            raise ConfigError(f"reward must be binary or page, got {self.reward!r}")
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold must lie in (0, 1], got {self.threshold}")

    @property
    def version(self) -> str:
        """The value of `Task.version`, with the release of the pages."""
        return rules_version(f"1+miniwob={_pages_version()}", self, rules=self.rules)


def tasks(split: Split, options: MiniWoBOptions, limit: int | None = None) -> tuple[Task, ...]:
    """The first `limit` tasks of `split`, or all, the pages taking turns."""
    data_hash = content_hash(_CONTENTS.read_text(encoding="utf-8"))

    def task_of(name: str, seed: int) -> Task:
        return options.task(f"{name}/{seed:05}", split, goal=name, seed=seed, data_hash=data_hash)

    names = options.tasks or tuple(known_contents())
    by_name = [[task_of(name, seed) for seed in _seeds(name, split)] for name in names]
    mixed = [task for turn in zip_longest(*by_name) for task in turn if task is not None]
    return tuple(mixed[:limit])


def parse_task_id(task_id: str) -> tuple[str, int]:
    """Name of the page and seed; a seed that is not listed can be played too.

    Raises:
        ValueError: No task has this id.
    """
    name, _, seed = task_id.partition("/")
    if name not in known_contents() or not (seed.isascii() and seed.isdecimal() and len(seed) < 10):
        raise ValueError(
            f"no MiniWoB++ task is called {task_id[:200]!r}; ids look like 'click-button/00012' "
            "(page, seed)"
        )
    return name, int(seed)


@cache
def known_contents() -> Mapping[str, tuple[str, ...]]:
    """Each page that is played, to the hashes of what its seeds begin with, from seed 0 on.

    Raises:
        ConfigError: If they are not those of the installed package.
    """
    first, *lines = _CONTENTS.read_text(encoding="utf-8").splitlines()
    listed, installed = first.removeprefix(_FIRST_LINE), _pages_version()
    if listed != installed:
        raise ConfigError(
            f"miniwob {installed} is installed, and the tasks are listed for {listed}: install "
            f"that, or list them anew by `python -m longhaul_envs.miniwob.contents`"
        )
    rows = (line.split() for line in lines)
    return {name: tuple(hashes) for name, *hashes in rows}


def _seeds(name: str, split: Split) -> list[int]:
    """The seeds of a page whose content falls into `split`, each content once."""
    first_seeds: dict[str, int] = {}
    for seed, content in enumerate(known_contents()[name]):
        first_seeds.setdefault(content, seed)
    return [seed for content, seed in first_seeds.items() if split_of(f"{name} {content}") is split]


def _pages_version() -> str:
    try:
        return importlib.metadata.version("miniwob")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError("miniwob is not installed; install longhaul-envs[web]") from error


ACTIONS = (
    '`click 3`, `double_click 3`, `triple_click 3`, `hover 3`, `type 3 "text"`, '
    '`select 3 "option"`, `press Enter`, `scroll down`, `scroll 3 up`, `drag 3 to 5`, '
    "`drag 3 by 20,-5` or `wait`; a point such as `80,120` stands where an element may"
)

_PROMPT = EnvironmentPrompt(
    system=(
        "You use a small web page to reach a goal. Each line of an observation is an element of "
        "the page: its number in brackets, its kind, its text in quotes, and what else is to be "
        "seen of it. Lines that are set in belong to the element above. Positions are in pixels, "
        "from the left and from the top.\n"
        f"Your actions: {ACTIONS}. `type` replaces what a field holds. One action a step."
    ),
    instruction="What is the next action?",
)


source = PackagedSource(
    MiniWoBOptions,
    tasks,
    lambda options: options.description(
        summary="small tasks on web pages, in a real browser",
        prompt=_PROMPT,
        actions=ACTIONS,
        shows_pictures=options.observation == "tree_and_image",
        picture_pixels=WIDTH * HEIGHT,
    ),
    needs=(("playwright", "web"), ("miniwob", "web")),
)
