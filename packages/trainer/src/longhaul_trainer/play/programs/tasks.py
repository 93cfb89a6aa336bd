"""Tasks of programs: from a file, from a module of the run's own, or an environment's.

A task is a JSON object. `id` names it, `split` says where it belongs, and `title`, or else `goal`,
is what people are shown; all may be missing, and whatever else it holds is the program's. Its
content is the object without `id` and `split`: no content comes twice, so the splits share none.
"""

import hashlib
import importlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from longhaul_core.components import import_module, is_own
from longhaul_core.environment import EnvironmentDescription, EnvironmentSource
from longhaul_core.errors import ConfigError, ProgramFailure, attributed_to
from longhaul_core.text import shortened
from longhaul_core.types import Split, Task
from longhaul_trainer.gateway.task_data import named_task

__all__ = [
    "SHARES",
    "EnvironmentTasks",
    "ListedTasks",
    "TaskSource",
    "task_source",
]

SHARES: Mapping[Split, float] = {Split.TRAIN: 0.8, Split.VALIDATION: 0.1, Split.TEST: 0.1}
"""How tasks without a `split` are shared out, where the run says nothing else."""

MAX_GOAL_CHARACTERS = 200

Row = tuple[str, Mapping[str, object]]
"""Where a task was read, for messages, and the task."""


class TaskSource(Protocol):
    """Tasks that a program plays: an `EnvironmentSource` without `make`."""

    def describe(self) -> EnvironmentDescription:
        """What the tasks are of; its id is `Task.environment`."""
        ...

    def tasks(self, split: Split) -> Sequence[Task]:
        """Every task of `split`, in the same order on every machine; splits share no content.

        Raises:
            ConfigError: If there is none.
        """
        ...


class ListedTasks:
    """Tasks of a file or a module. A `TaskSource`."""

    def __init__(self, source: str, tasks: Sequence[Task]) -> None:
        """Tasks that were read.

        Args:
            source: As the run names it.
            tasks: Of all splits, no content and no id twice.
        """
        self._source = source
        self._name = tasks[0].environment if tasks else source
        self._tasks = {
            split: tuple(task for task in tasks if task.split is split) for split in Split
        }

    def describe(self) -> EnvironmentDescription:
        """See `TaskSource.describe`."""
        return EnvironmentDescription(
            id=self._name, version="1", summary=f"tasks of {self._source}"
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `TaskSource.tasks`."""
        if not self._tasks[split]:
            there_are = ", ".join(f"{len(tasks)} {name}" for name, tasks in self._tasks.items())
            remedy = {
                Split.VALIDATION: ", or validate nothing (validation.num_tasks = 0), or on "
                'training tasks (validation.split = "train")',
                Split.TEST: ", or do without a test set (validation.test_num_tasks = 0)",
            }
            raise ConfigError(
                f"tasks.source = {self._source!r} has no {split} task; there are {there_are}. Give "
                f'tasks "split": "{split}"{remedy.get(split, "")}'
            )
        return self._tasks[split]


class EnvironmentTasks:
    """The tasks of an environment, for a program that plays it by itself. A `TaskSource`."""

    def __init__(self, source: EnvironmentSource, *, options: Mapping[str, object]) -> None:
        """Tasks of `source`, which was made with `options`."""
        self._source = source
        self._options = dict(options)

    def describe(self) -> EnvironmentDescription:
        """See `TaskSource.describe`."""
        return self._source.describe()

    def tasks(self, split: Split) -> Sequence[Task]:
        """See `TaskSource.tasks`; each has as data what builds the environment and resets it."""
        return tuple(
            replace(task, data=_canonical({**named_task(task), "options": self._options}))
            for task in self._source.tasks(split)
        )


def task_source(
    source: str, *, name: str = "", shares: Mapping[Split, float] = SHARES
) -> ListedTasks:
    """The tasks that a run names.

    Args:
        source: A file `….jsonl` or `….parquet`, or `module:name`: an iterable of objects, or a
            function that is called with each split's name and returns one.
        name: `Task.environment` of the tasks; empty for the file's name, or `module:name`.
        shares: Which share of the tasks each split has, where the tasks name none; they add up to
            1. The hash of a task's content decides, so that a task stays where it is when others
            come and go. A split that has none so takes the nearest by hash from a split with
            several, until one of its own comes: with three tasks or more, every split has one.

    Raises:
        ConfigError: What is wrong and where: it cannot be read, a line is no object, an id or a
            content comes twice, some tasks name a split and some do not.
    """
    if not math.isclose(sum(shares.values()), 1.0) or min(shares.values()) < 0:
        shown = {split.value: share for split, share in shares.items()}
        raise ConfigError(f"shares of the splits must add up to 1, none below 0, got {shown}")
    rows = list(_rows(source))
    if not rows:
        raise ConfigError(f"tasks.source = {source!r} has no task")
    name = name or (source if is_own(source) else Path(source).name)
    named = [place for place, task in rows if "split" in task]
    if 0 < len(named) < len(rows):
        other = next(place for place, task in rows if "split" not in task)
        raise ConfigError(f"{named[0]} names its split, and {other} does not; name all or none")
    contents = [_content(place, row) for place, row in rows]
    splits = (
        [_split(place, row["split"]) for place, row in rows]
        if named
        else _shared_out([_digest(content) for content in contents], shares)
    )
    tasks: list[Task] = []
    by_id: dict[str, str] = {}
    by_content: dict[str, tuple[str, Task]] = {}
    for (place, row), content, split in zip(rows, contents, splits, strict=True):
        task = _task(place, row, name=name, content=content, split=split)
        earlier = by_id.setdefault(task.task_id, place)
        if earlier is not place:
            raise ConfigError(f"{place}: id {task.task_id!r} is that of {earlier} too")
        where, same = by_content.setdefault(task.data_hash, (place, task))
        if same is not task:
            raise ConfigError(
                f"{place}: task {task.task_id!r} ({task.split}) has the same content as task "
                f"{same.task_id!r} ({same.split}) of {where}; leave one of the two out"
            )
        tasks.append(task)
    return ListedTasks(source, tasks)


def _content(place: str, row: Mapping[str, object]) -> str:
    try:
        _canonical(row)
        return _canonical({key: row[key] for key in row if key not in ("id", "split")})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: is no JSON: {error}") from error


def _digest(content: str) -> bytes:
    return hashlib.sha256(content.encode()).digest()


def _task(place: str, row: Mapping[str, object], *, name: str, content: str, split: Split) -> Task:
    digest = _digest(content)
    task_id = row.get("id", digest.hex()[:16])
    if isinstance(task_id, bool) or not isinstance(task_id, str | int) or task_id == "":
        raise ConfigError(f"{place}: id must be text or a whole number, got {task_id!r}")
    title = row.get("title", row.get("goal", json.loads(content)))
    if not isinstance(title, str):
        title = json.dumps(title, sort_keys=True, ensure_ascii=False)
    return Task(
        environment=name,
        version="1",
        data_hash=digest.hex()[:16],
        task_id=str(task_id),
        seed=int.from_bytes(digest[8:16]) >> 11,  # 53 bits: any JSON keeps it
        split=split,
        goal=shortened(" ".join(title.split()), MAX_GOAL_CHARACTERS),
        data=_canonical(row),
    )


def _split(place: str, value: object) -> Split:
    if value not in list(Split):
        raise ConfigError(f"{place}: split must be one of {', '.join(Split)}, got {value!r}")
    return Split(value)


def _shared_out(digests: Sequence[bytes], shares: Mapping[Split, float]) -> list[Split]:
    """The split of each content, by the last 8 bytes of its hash as a number in [0, 1)."""
    places = [int.from_bytes(digest[-8:]) * 2.0**-64 for digest in digests]
    parts: dict[Split, tuple[float, float]] = {}
    low = 0.0
    for split in Split:
        if share := shares.get(split, 0.0):
            parts[split] = (low, low + share)
            low += share
    largest = max(parts, key=lambda split: shares[split])  # has what rounding left over

    def own(place: float) -> Split:
        return next((split for split, (low, high) in parts.items() if low <= place < high), largest)

    splits = [own(place) for place in places]
    for split in (Split.TEST, Split.VALIDATION, Split.TRAIN):
        numbers = Counter(splits)
        lenders = [at for at, lender in enumerate(splits) if numbers[lender] > 1]
        if split in parts and not numbers[split] and lenders:
            low, high = parts[split]
            splits[min(lenders, key=lambda at: max(low - places[at], places[at] - high))] = split
    return splits


def _canonical(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _rows(source: str) -> Iterator[Row]:
    path = Path(source)
    match path.suffix:
        case ".jsonl":
            return _json_lines(path)
        case ".parquet":
            return _parquet(path)
        case _ if is_own(source):
            return _of_module(source)
        case _:
            raise ConfigError(
                f"tasks.source = {source!r}: must be a file .jsonl or .parquet, or module:name"
            )


def _json_lines(path: Path) -> Iterator[Row]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    place = f"{path}, line {number}"
                    yield place, _object(place, _read(place, line))
    except OSError as error:
        raise ConfigError(f"tasks.source = {str(path)!r}: {error}") from error


def _read(place: str, line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one
        raise ConfigError(f"{place}: is no JSON: {error}") from error


def _parquet(path: Path) -> Iterator[Row]:
    try:
        table = importlib.import_module("pyarrow.parquet").read_table(path)  # slow to import
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own are these
        raise ConfigError(f"tasks.source = {str(path)!r}: {error}") from error
    rows: list[Mapping[str, object]] = table.to_pylist()
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _of_module(source: str) -> Iterator[Row]:
    module, _, attribute = source.partition(":")
    setting = f"tasks.source = {source!r}"
    found: object = getattr(import_module(module, setting=setting), attribute, None)
    if found is None:
        raise ConfigError(f"{setting}: module {module} has no {attribute}")
    try:
        with attributed_to(ProgramFailure, setting):
            if not callable(found):
                yield from _listed(source, found)
                return
            of_split = cast("Callable[[str], object]", found)
            for split in Split:
                for place, row in _listed(f"{source}({split.value!r})", of_split(split.value)):
                    if row.get("split", split.value) != split.value:
                        raise ConfigError(f"{place}: is of split {row['split']!r}")
                    yield place, {**row, "split": split.value}
    except ProgramFailure as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        raise ConfigError(str(error)) from error


def _listed(name: str, found: object) -> Iterator[Row]:
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        kind = type(cast("object", found)).__name__
        raise ConfigError(f"{name}: must be an iterable of objects, got {kind}")
    for number, row in enumerate(cast("Iterable[object]", found), start=1):
        place = f"{name}, task {number}"
        yield place, _object(place, row)


def _object(place: str, row: object) -> Mapping[str, object]:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{place}: must be a JSON object, got {type(row).__name__}")
    return cast("Mapping[str, object]", row)
