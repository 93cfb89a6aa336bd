"""AgentGym's tasks: items of a server, by number.

A task id is the authors' item id, `TASK_NUMBER`, e.g. `babyai_12`. Splits are, in this order: the
authors' lists of item ids, if their files are named; the ranges that the authors give; otherwise
a hash of the item's id. What an item holds is known to the server alone, so splits are disjoint
by item, not by content.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longhaul_core.environment import Environment, EnvironmentDescription
from longhaul_core.errors import ConfigError
from longhaul_core.gym import options_from
from longhaul_core.types import Split, Task
from longhaul_envs.agentgym.dialects import DIALECTS, Dialect
from longhaul_envs.extras import required
from longhaul_envs.served import checked_url, field_of, items_of, with_every_split

__all__ = [
    "ENVIRONMENT_ID",
    "AgentGymOptions",
    "AgentGymSource",
    "item_of",
    "source",
    "tasks",
    "under_our_names",
]

ENVIRONMENT_ID = "longhaul/AgentGym-v0"

_AUTHORS_NAMES = {"env_addr": "url", "task_name": "task", "timeout": "timeout_seconds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGymOptions:
    """What can be chosen about an AgentGym server."""

    url: str = ""
    """Address of the server; AgentGym-RL's `env_addr`."""
    task: str = ""
    """Which of the 15 kinds of server it is; AgentGym-RL's `task_name`."""
    timeout_seconds: float = 300.0
    """For one request, above 0; AgentGym-RL's `timeout`. The run's own deadlines hold beside it."""
    num_items: int = 0
    """Items of the server, at least 3; 0 for the number that the authors give."""
    max_episodes: int = 0
    """Most episodes at once in an agent loop; 0 for as many as the server keeps apart."""
    train_items: str = ""
    """Path of the authors' list of training items: JSON, `[{"item_id": "babyai_12"}, …]`."""
    test_items: str = ""
    """Path of the authors' list of test items."""

    def __post_init__(self) -> None:
        if self.task not in DIALECTS:
            raise ConfigError(
                f"{ENVIRONMENT_ID} needs the kind of its server as option 'task', one of "
                f"{', '.join(DIALECTS)}; got {self.task!r}"
            )
        checked_url(self.url, environment_id=ENVIRONMENT_ID)
        if not self.timeout_seconds > 0:
            raise ConfigError(f"timeout_seconds must be above 0, got {self.timeout_seconds}")
        if self.num_items and self.num_items < len(Split):
            raise ConfigError(f"num_items must be 0 or at least 3, got {self.num_items}")
        most = self.dialect.max_environments
        if self.max_episodes < 0 or (most is not None and self.max_episodes > most):
            raise ConfigError(
                f"max_episodes of {self.task} must be from 0 to "
                f"{'any number' if most is None else most}, got {self.max_episodes}"
            )

    @property
    def dialect(self) -> Dialect:
        """How the server is spoken to."""
        return DIALECTS[self.task]

    @property
    def base_url(self) -> str:
        """The address that routes are added to."""
        base = self.url.rstrip("/")
        return base if base.endswith(self.dialect.path) else base + self.dialect.path

    @property
    def most_episodes(self) -> int | None:
        """Most episodes at once; None for any number."""
        return self.max_episodes or self.dialect.max_environments

    @property
    def version(self) -> str:
        """The value of `Task.version`."""
        return f"1+task={self.task}"


def under_our_names(options: Mapping[str, object]) -> dict[str, object]:
    """`options`, with the names that AgentGym-RL's users write replaced by ours.

    Raises:
        ConfigError: If an option is given under both names.
    """
    ours: dict[str, object] = {}
    for name, value in options.items():
        known = _AUTHORS_NAMES.get(name, name)
        if known in ours:
            raise ConfigError(
                f"{ENVIRONMENT_ID} is given {known!r} twice, once under AgentGym-RL's name"
            )
        ours[known] = value
    return ours


def tasks(split: Split, options: AgentGymOptions) -> tuple[Task, ...]:
    """Every task of `split`, by number of item unless a file of the authors orders them.

    Raises:
        ConfigError: If a file cannot be read, is no list of items of this server, or leaves a
            split without items.
    """
    return tuple(
        Task(
            environment=ENVIRONMENT_ID,
            version=options.version,
            data_hash="",
            task_id=item,
            seed=item_of(item),
            split=split,
            goal=f"{options.task} {item_of(item)}",
        )
        for item in with_every_split(_given(options), environment_id=ENVIRONMENT_ID)[split]
    )


def item_of(task_id: str) -> int:
    """The item's number.

    Raises:
        ConfigError: If the id does not end with one.
    """
    number = task_id.rpartition("_")[2]
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(
            f"AgentGym's item {task_id!r} names no number, which is what its server takes; items "
            "look like 'babyai_12'"
        )
    return int(number)


def _given(options: AgentGymOptions) -> dict[Split, list[str]]:
    files = {Split.TRAIN: options.train_items, Split.TEST: options.test_items}
    if any(files.values()):
        given = {split: _items_in(Path(path)) for split, path in files.items() if path}
        if not options.train_items:
            raise ConfigError(
                f"{ENVIRONMENT_ID} is given test_items without train_items; name both files, or "
                "train_items alone"
            )
        return given
    ranges = options.dialect.splits
    if options.num_items or not ranges:
        ranges = {Split.TRAIN: range(options.num_items or options.dialect.num_items)}
    return {
        split: [f"{options.task}_{number}" for number in numbers]
        for split, numbers in ranges.items()
    }


def _items_in(path: Path) -> list[str]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"AgentGym's list of items {str(path)!r}: {error}") from error
    items: list[str] = []
    for row in items_of(rows) or [None]:
        item = field_of(row, "item_id")
        if not isinstance(item, str):
            raise ConfigError(
                f"AgentGym's list of items {str(path)!r} must be JSON such as "
                f'[{{"item_id": "babyai_12"}}], holds {str(row)[:100]}'
            )
        item_of(item)
        items.append(item)
    if len(set(items)) < len(items):
        raise ConfigError(f"AgentGym's list of items {str(path)!r} names an item twice")
    return items


def source(options: Mapping[str, object]) -> "AgentGymSource":
    """An AgentGym server under `options`: those of `AgentGymOptions`, or AgentGym-RL's names.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or aiohttp is not
            installed.
    """
    required("aiohttp", "agentgym")
    return AgentGymSource(
        options_from(
            AgentGymOptions,
            under_our_names(options),
            environment_id=ENVIRONMENT_ID,
        )
    )


class AgentGymSource:
    """An `EnvironmentSource` whose episodes are played by an AgentGym server."""

    def __init__(self, options: AgentGymOptions) -> None:
        from longhaul_envs.agentgym.environment import Server

        self._options = options
        self._server = Server(options)

    def describe(self) -> EnvironmentDescription:
        """See `EnvironmentSource.describe`."""
        dialect = self._options.dialect
        return EnvironmentDescription(
            id=ENVIRONMENT_ID,
            version=self._options.version,
            summary=f"{dialect.summary}, on the AgentGym server at {self._options.base_url}",
            prompt=dialect.prompt,
            actions=dialect.actions,
            determinism=dialect.determinism,
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `EnvironmentSource.tasks`."""
        return tasks(split, self._options)

    def make(self, task: Task) -> Environment:
        """See `EnvironmentSource.make`."""
        return self._server.environment()
