"""Which stored episodes a run imitates.

They are chosen once, when the run starts, and written into its folder: a resume goes on with the
same ones, whatever their runs have played since.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.exchange.where import parse_where
from longhaul_core.store.queries import (
    EndedEpisode,
    RunSummary,
    ended_episodes,
    get_run,
    list_runs,
)
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Split, Task, TaskKey
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.imitation import ImitationSource

__all__ = ["Demonstration", "Demonstrations"]

FILE = "demonstrations.json"
_NEWEST = 500
"""Runs among which a name is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An episode that is imitated."""

    episode_id: str
    weight: float
    """Factor of its tokens' weight in the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """The episodes that a run imitates, by their tasks."""

    tasks: tuple[Task, ...]
    """In order of environment and id."""
    of_task: Mapping[TaskKey, tuple[Demonstration, ...]]
    """At least one for each task, the best first."""
    num_steps: int
    """Of all of them."""

    @property
    def num_episodes(self) -> int:
        """Of all tasks."""
        return sum(map(len, self.of_task.values()))

    def num_of(self, task: Task) -> int:
        """Of one task."""
        return len(self.of_task[task.key])

    @classmethod
    def chosen(cls, config: RunConfig) -> Self:
        """What the run's sources hold.

        Raises:
            ConfigError: A source is not there or has nothing that may be imitated, by name.
            StoreError: The store cannot be read.
        """
        by_task: dict[TaskKey, list[tuple[EndedEpisode, float]]] = defaultdict(list)
        engine = read_only_engine(config.store)
        try:
            with Session(engine) as session:
                for place, source in enumerate(config.imitation.sources):
                    setting = f"imitation.sources[{place}]"
                    for episode in _episodes_of(session, source, setting=setting):
                        by_task[episode.task.key].append((episode, source.weight))
        finally:
            engine.dispose()
        _require_environments(config, by_task)
        kept = {
            key: sorted(
                found,
                key=lambda each: (-each[0].episode_return, each[0].num_steps, each[0].episode_id),
            )[: config.imitation.best_per_task]
            for key, found in sorted(by_task.items())
        }
        by_return = config.imitation.weight == "return"
        for found in kept.values():
            _require_one_task([episode for episode, _ in found])
            if by_return:
                _require_weights([episode for episode, _ in found])
        return cls(
            tasks=tuple(found[0][0].task for found in kept.values()),
            of_task={
                key: tuple(
                    Demonstration(
                        episode_id=episode.episode_id,
                        weight=weight * (episode.episode_return if by_return else 1.0),
                    )
                    for episode, weight in found
                )
                for key, found in kept.items()
            },
            num_steps=sum(episode.num_steps for found in kept.values() for episode, _ in found),
        )

    def write(self, folder: Path) -> None:
        """Leave them in a folder."""
        content = {
            "num_steps": self.num_steps,
            "tasks": [
                asdict(task) | {"demonstrations": [asdict(each) for each in self.of_task[task.key]]}
                for task in self.tasks
            ],
        }
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` left there.

        Raises:
            FileNotFoundError: Nothing.
        """
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        of_task: dict[TaskKey, tuple[Demonstration, ...]] = {}
        tasks: list[Task] = []
        for entry in content["tasks"]:
            found = tuple(Demonstration(**each) for each in entry.pop("demonstrations"))
            task = Task(**entry | {"split": Split(entry["split"])})
            tasks.append(task)
            of_task[task.key] = found
        return cls(tasks=tuple(tasks), of_task=of_task, num_steps=content["num_steps"])

    @classmethod
    def of_run(cls, config: RunConfig, folder: Path) -> Self:
        """Those that were chosen when the run began; chosen now if it begins.

        Raises:
            ConfigError: See `chosen`.
        """
        if (folder / FILE).is_file():
            return cls.read(folder)
        found = cls.chosen(config)
        found.write(folder)
        return found


def _episodes_of(session: Session, source: ImitationSource, *, setting: str) -> list[EndedEpisode]:
    run = _run_called(session, source.run, setting=setting)
    conditions = [f"{name}={_word(value)}" for name, value in source.where.items()]
    try:
        where = parse_where(conditions)
    except ConfigError as error:
        raise ConfigError(f"{setting}.where: {error}") from error
    found = list(ended_episodes(session, where.filter_of(run.run_id)))
    if not found:
        raise ConfigError(
            f"{setting}: no episode of run {run.run_id} ended and has "
            f"{', '.join(conditions) or 'any step'}; it has {run.num_episodes:,} episodes, "
            f"{run.num_failed_episodes:,} of them failed. Change `where`, or name another run"
        )
    whole = [episode for episode in found if not episode.removed]
    if not whole:
        raise ConfigError(
            f"{setting}: the texts of all {len(found):,} episodes that were found in run "
            f"{run.run_id} were removed by its retention, and there is nothing to imitate; name a "
            "run that keeps them (retention.full_training_steps)"
        )
    return whole


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run_called(session: Session, name: str, *, setting: str) -> RunSummary:
    """The run of an id, or the newest of a name."""
    try:
        return get_run(session, run_id=name).summary
    except LookupError:
        newest = list_runs(session, limit=_NEWEST)
    named = next((run for run in newest if run.name == name), None)
    if named is not None:
        return named
    known = ", ".join(dict.fromkeys(run.name for run in newest[:20])) or "none"
    raise ConfigError(
        f"{setting}.run = {name!r}: the store has no run of this id or name; it has runs called "
        f"{known}. `trainer demonstrate` makes one of an environment's expert"
    )


def _require_environments(config: RunConfig, by_task: Mapping[TaskKey, object]) -> None:
    played = {entry.id for entry in config.played_environments}
    others = sorted({key.environment for key in by_task} - played)
    if others:
        raise ConfigError(
            f"imitation.sources hold episodes of {', '.join(others)}, and this run plays "
            f"{', '.join(sorted(played))}: describe those environments too, or leave them out by "
            '`where = { environment = "…" }`'
        )


def _require_one_task(episodes: list[EndedEpisode]) -> None:
    one, *others = episodes
    for other in others:
        if other.task != one.task:
            raise ConfigError(
                f"imitation.sources: {one.episode_id} and {other.episode_id} are both of task "
                f"{one.task.key}, and their environments differ in version or data; take them "
                "from one version"
            )


def _require_weights(episodes: list[EndedEpisode]) -> None:
    for episode in episodes:
        if episode.episode_return < 0:
            raise ConfigError(
                f'imitation.weight = "return": {episode.episode_id} has the return '
                f"{episode.episode_return:g}, and a weight below 0 would train away from its "
                "replies without end; choose episodes by `where = { min_return = 0 }`, or set "
                'imitation.weight = "one"'
            )
