"""Which stored episodes a run imitates, in place of reinforcement learning or beside it.

They are chosen once, before the run starts, and written into its folder: a resume goes on with the
same ones, whatever their runs have played since.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

from sqlalchemy.orm import Session

from longhaul_core.advantages.preferences import (
    Choice,
    PreferenceSettings,
    Side,
    paired,
    paired_steps,
)
from longhaul_core.errors import ConfigError
from longhaul_core.exchange.where import parse_where
from longhaul_core.store.queries import (
    EndedEpisode,
    RunSummary,
    ended_episodes,
    get_run,
    list_runs,
    newest_run_called,
    rows_of_episodes,
)
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Split, Task, TaskKey
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.imitation import ImitationSource
from longhaul_trainer.run.directory import write_atomically

__all__ = ["Demonstration", "Demonstrations", "conditions_of"]

FILE = "demonstrations.json"
"""In the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An episode that is imitated."""

    episode_id: str
    weight: float
    """Factor of its tokens' weight in the loss."""
    imported: bool = False
    """Whether it is of a file, which need not tell actions from replies."""


class _Found(NamedTuple):
    episode: EndedEpisode
    weight: float
    """Of its source."""
    imported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """The episodes that a run imitates, by their tasks."""

    tasks: tuple[Task, ...]
    """In order of environment and id."""
    of_task: Mapping[TaskKey, tuple[Demonstration, ...]]
    """At least one for each task, the best first."""
    num_steps: int
    """Of all of them."""
    runs: tuple[str, ...]
    """Ids of the runs that they are of, in the order of the sources."""

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
        by_task: dict[TaskKey, list[_Found]] = defaultdict(list)
        runs: list[str] = []
        num_removed = 0
        engine = read_only_engine(config.store)
        try:
            with Session(engine) as session:
                for place, source in enumerate(config.imitation.sources):
                    setting = f"imitation.sources[{place}]"
                    run = _run_called(session, source.run, setting=setting, store=config.store)
                    runs.append(run.run_id)
                    for episode in _episodes_of(session, run, source, setting=setting):
                        num_removed += episode.removed
                        if not episode.removed:
                            found = _Found(episode, source.weight, run.kind == "imported")
                            by_task[episode.task.key].append(found)
        finally:
            engine.dispose()
        _require_environments(config, by_task)
        best_first = {
            key: sorted(
                found,
                key=lambda each: (
                    -each.episode.episode_return,
                    each.episode.num_steps,
                    each.episode.episode_id,
                ),
            )
            for key, found in sorted(by_task.items())
        }
        preferences = config.imitation.preferences
        if preferences is None:
            best = config.imitation.best_per_task
            kept = {key: found[:best] for key, found in best_first.items()}
        else:
            kept = (
                _with_pairs_of_steps(config, best_first, preferences)
                if preferences.pairs == "steps"
                else _in_pairs(best_first, preferences, num_removed=num_removed)
            )
        by_return = config.imitation.weight == "return"
        for found in kept.values():
            _require_one_task([each.episode for each in found])
            if by_return:
                _require_weights([each.episode for each in found])
        return cls(
            tasks=tuple(found[0].episode.task for found in kept.values()),
            of_task={
                key: tuple(
                    Demonstration(
                        episode_id=each.episode.episode_id,
                        weight=each.weight * (each.episode.episode_return if by_return else 1.0),
                        imported=each.imported,
                    )
                    for each in found
                )
                for key, found in kept.items()
            },
            num_steps=sum(each.episode.num_steps for found in kept.values() for each in found),
            runs=tuple(runs),
        )

    def beside(self, number: int, *, seed: int) -> tuple[Task, Demonstration]:
        """The one that is imitated as the `number`th, from 0, and its task.

        All of them are taken before one is taken again; each pass has an order of its own, which
        the seed draws. So a resume goes on in the same order.
        """
        passes, place = divmod(number, self.num_episodes)
        every = [(task, each) for task in self.tasks for each in self.of_task[task.key]]
        Random(f"{seed}/{passes}").shuffle(every)
        return every[place]

    def write(self, folder: Path) -> None:
        """Leave them in the run's folder."""
        content = {
            "runs": self.runs,
            "num_steps": self.num_steps,
            "tasks": [
                asdict(task) | {"demonstrations": [asdict(each) for each in self.of_task[task.key]]}
                for task in self.tasks
            ],
        }
        write_atomically(folder / FILE, json.dumps(content))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` left there.

        Raises:
            ConfigError: Nothing.
        """
        path = folder / FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path} is missing, which names the episodes that the run imitates; begin another "
                "run, from this one's weights if they are of use (model.path)"
            ) from error
        of_task: dict[TaskKey, tuple[Demonstration, ...]] = {}
        tasks: list[Task] = []
        for entry in content["tasks"]:
            found = tuple(Demonstration(**each) for each in entry.pop("demonstrations"))
            task = Task(**entry | {"split": Split(entry["split"])})
            tasks.append(task)
            of_task[task.key] = found
        return cls(
            tasks=tuple(tasks),
            of_task=of_task,
            num_steps=content["num_steps"],
            runs=tuple(content["runs"]),
        )


def _episodes_of(
    session: Session, run: RunSummary, source: ImitationSource, *, setting: str
) -> list[EndedEpisode]:
    """Those that a source names, with those that retention emptied; one at least is whole."""
    conditions = conditions_of(source.where)
    if run.kind == "train" and "phase" not in source.where:
        conditions.append("phase=train")  # its panels are what it was scored on
    if run.kind == "branch" and source.where.get("phase") != "branch":
        raise ConfigError(
            f"{setting}: run {run.run_id} has branches of stored episodes, whose first steps are "
            'those of other episodes; imitate them by `where = { phase = "branch" }`'
        )
    try:
        where = parse_where(conditions)
    except ConfigError as error:
        raise ConfigError(f"{setting}.where: {error}") from error
    found = list(ended_episodes(session, where.filter_of(run.run_id)))
    if not found:
        raise ConfigError(
            f"{setting}: run {run.run_id} has no episode that ended"
            + (f" with {', '.join(conditions)}" if conditions else "")
            + f"; it has {run.num_episodes:,} episodes, {run.num_failed_episodes:,} of them "
            "failed. Change `where`, or name another run"
        )
    if all(episode.removed for episode in found):
        raise ConfigError(
            f"{setting}: the texts of all {len(found):,} episodes that were found in run "
            f"{run.run_id} were removed by its retention, and there is nothing to imitate; name a "
            "run that keeps them (retention.full_training_steps)"
        )
    return found


def _in_pairs(
    best_first: Mapping[TaskKey, list[_Found]], settings: PreferenceSettings, *, num_removed: int
) -> dict[TaskKey, list[_Found]]:
    """The episodes of each task that are in a pair, the best first; of at least one task."""
    kept: dict[TaskKey, list[_Found]] = {}
    for key, found in best_first.items():
        pairs = paired([each.episode.episode_return for each in found], settings)
        if pairs:
            kept[key] = [found[place] for place in sorted({p for pair in pairs for p in pair})]
    if not kept:
        alone = sum(len(found) == 1 for found in best_first.values())
        raise ConfigError(
            f'imitation.loss = "dpo": no task has a better and a worse episode. Of '
            f"{len(best_first):,} tasks with {sum(map(len, best_first.values())):,} episodes, "
            f"{alone:,} have one episode alone, and in {len(best_first) - alone:,} the returns "
            f"differ by less than imitation.min_gap = {settings.min_gap:g}; the texts of "
            f"{num_removed:,} further episodes were removed by retention. Name a source whose "
            "episodes fail beside one whose episodes succeed, and let `where` choose both"
        )
    return kept


class _Stored(NamedTuple):
    """Of `steps`."""

    episode_id: str
    step_index: int
    anchor_hash: str
    action: str
    reward: float


def _with_pairs_of_steps(
    config: RunConfig, best_first: Mapping[TaskKey, list[_Found]], settings: PreferenceSettings
) -> dict[TaskKey, list[_Found]]:
    """Episodes of the tasks of which two took different actions in one state, the best first.

    Whether they read the same prompt there is known when they are played again. Of a task are at
    most `rollout.group_size`, half of them with the highest returns and half with the lowest.
    """
    kept: dict[TaskKey, list[_Found]] = {}
    most = config.rollout.group_size
    engine = read_only_engine(config.store)
    try:
        with Session(engine) as session:
            for key, found in best_first.items():
                few = found
                if len(found) > most:
                    few = [*found[: -(-most // 2)], *found[len(found) - most // 2 :]]
                if len(few) > 1 and _pairs_of_steps(session, few, settings):
                    kept[key] = few
    finally:
        engine.dispose()
    if not kept:
        raise ConfigError(
            f'imitation.pairs = "steps": in none of {len(best_first):,} tasks with '
            f"{sum(map(len, best_first.values())):,} episodes did two of them take different "
            "actions in one state whose returns from there differ by "
            f"imitation.min_gap = {settings.min_gap:g}. Name a run that plays groups of a task, or "
            'branches of stored steps, by `where = { phase = "branch" }`'
        )
    return kept


def _pairs_of_steps(
    session: Session, found: Sequence[_Found], settings: PreferenceSettings
) -> list[tuple[Side, Side]]:
    ids = [one.episode.episode_id for one in found]
    steps: dict[str, list[_Stored]] = {one: [] for one in ids}
    for step in rows_of_episodes(session, _Stored, "steps", episode_ids=ids):
        steps[step.episode_id].append(step)
    return paired_steps(
        [[step.reward for step in steps[one]] for one in ids],
        [[Choice(step.anchor_hash, step.action) for step in steps[one]] for one in ids],
        settings,
    )


def conditions_of(where: Mapping[str, object]) -> list[str]:
    """The conditions of a setting, as `parse_where` reads them."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in where.items()
    ]


def _run_called(session: Session, name: str, *, setting: str, store: str) -> RunSummary:
    """The run of an id, or the newest of a name."""
    run_id = newest_run_called(session, name)
    if run_id is not None:
        return get_run(session, run_id=run_id).summary
    names = dict.fromkeys(run.name for run in list_runs(session, limit=20))
    raise ConfigError(
        f"{setting}.run = {name!r}: there is no run of this id or name in {store}; its newest runs "
        f"are called {', '.join(names) or 'nothing, since it has none'}. `trainer demonstrate` "
        "makes one of an environment's expert"
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
        differing = [
            f"{name} {getattr(one.task, name)!r} and {getattr(other.task, name)!r}"
            for name in ("version", "data_hash", "seed")
            if getattr(one.task, name) != getattr(other.task, name)
        ]
        if differing:
            raise ConfigError(
                f"imitation.sources: {one.episode_id} and {other.episode_id} are both of task "
                f"{one.task.key}, and differ in {', '.join(differing)} of it; take them from one "
                "version of the environment"
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
