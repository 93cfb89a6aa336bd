"""What `trainer try-algorithm` does to a store: it reads the newest groups of a run.

Apart from the command, because SQLAlchemy takes a while to import.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table
from sqlalchemy.orm import Session

from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit
from longhaul_core.advantages.estimators import EstimatorSettings as BuiltInSettings
from longhaul_core.components import is_own
from longhaul_core.errors import ConfigError
from longhaul_core.store import queries
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.cli.arguments import console_of
from longhaul_trainer.cli.stored_runs import find_in_store
from longhaul_trainer.config.estimator_settings import (
    OWN,
    EstimatorSettings,
    own_estimator,
)
from longhaul_trainer.training.estimate import estimate

Place = tuple[queries.GroupId, str, int]
"""Group, episode and step."""


@dataclass
class _Given:
    """What one estimator gave the groups that it could be computed for."""

    advantages: dict[Place, float] = field(default_factory=dict[Place, float])
    trained: bool = False
    missing: Counter[str] = field(default_factory=Counter[str])

    @property
    def num_groups(self) -> int:
        return len({group for group, _, _ in self.advantages})


def try_in_store(
    store: str, reference: str, *, name: str, num_groups: int, options: Mapping[str, object]
) -> None:
    """Print one row for each estimator: how many steps it credits, how much, and how alike.

    Args:
        store: Path or URL.
        reference: The run, as a person names it.
        name: `package.module:name`.
        num_groups: At most so many of the newest.
        options: What the estimator gets as `settings.options`.

    Raises:
        ConfigError: If there is no such run, or no group of a training step in it; or if the
            function cannot be imported, raises, or returns what is no credit of a group.
    """
    if not is_own(name):
        raise ConfigError(f"{name!r} must be package.module:name of your own")
    own_estimator(name)
    engine = read_only_engine(store)
    try:
        run_id = find_in_store(engine, reference, store)
        with Session(engine) as session:
            newest = queries.list_groups(
                session,
                run_id=run_id,
                where=queries.GroupFilter(phase="train"),
                limit=num_groups,
            )
            given = _given(
                session, [group.group_id for group in newest.rows], name=name, options=options
            )
    finally:
        engine.dispose()
    if not given:
        raise ConfigError(f"--run {reference!r}: {run_id} has no group of a training step yet")
    _show(given, name=name, run_id=run_id, num_groups=len(newest.rows))


def _given(
    session: Session,
    groups: Sequence[queries.GroupId],
    *,
    name: str,
    options: Mapping[str, object],
) -> dict[str, _Given]:
    own = {name: _tried(name, options)}
    given: dict[str, _Given] = {}
    for group in groups:
        found = queries.advantages_by_estimator(session, group, further=own)
        for each in found.estimators:
            of_estimator = given.setdefault(each.estimator, _Given())
            of_estimator.trained = each.trained
            if each.missing is not None:
                of_estimator.missing[each.missing] += 1
            of_estimator.advantages |= {
                (group, episode.episode_id, step): advantage
                for episode in each.episodes
                for step, advantage in enumerate(episode.advantages)
            }
    return given


def _tried(name: str, options: Mapping[str, object]) -> Estimator:
    """The user's function, given what a run of it would give: penalties are in the rewards."""

    def compute(groups: Sequence[Group], settings: BuiltInSettings) -> list[GroupCredit]:
        own = EstimatorSettings.model_validate(
            {**settings.model_dump(), "name": name, "options": options}
        )
        return estimate([_with_penalties(group) for group in groups], own)

    return replace(OWN, compute=compute, summary="your own", penalises_actions=True)


def _with_penalties(group: Group) -> Group:
    if not group.action_penalties:
        return group
    lowered = [
        rewards - penalties
        for rewards, penalties in zip(group.step_rewards, group.action_penalties, strict=True)
    ]
    return replace(group, step_rewards=lowered, action_penalties=())


def _show(given: Mapping[str, _Given], *, name: str, run_id: str, num_groups: int) -> None:
    console = console_of("stdout")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("estimator", overflow="fold")
    for title in ("groups", "steps", "credited", "mean |A|", "least", "most", "correlation"):
        table.add_column(title, justify="right")
    first = [name, *(each for each in given if each != name)]
    for estimator in first:
        of_estimator = given[estimator]
        mark = " [dim](trained)[/]" if of_estimator.trained else ""
        table.add_row(
            escape(estimator) + mark,
            f"{of_estimator.num_groups:,}",
            *_numbers(of_estimator.advantages, given[name].advantages),
        )
    console.print(
        f"{run_id}: its newest {num_groups:,} groups of training steps. credited: steps whose "
        f"advantage is not 0; correlation: of its advantages with those of {escape(name)}",
    )
    console.print(table)
    for estimator in first:
        for reason, times in given[estimator].missing.items():
            console.print(
                f"[yellow]not computed:[/] {escape(estimator)}, {times:,} groups: {escape(reason)}",
            )


def _numbers(advantages: Mapping[Place, float], tried: Mapping[Place, float]) -> list[str]:
    """Cells of a row; empty where there is nothing to count."""
    if not advantages:
        return ["0", *[""] * 5]
    values = np.array([*advantages.values()])
    cells = [
        f"{len(values):,}",
        f"{np.count_nonzero(values) / len(values):.0%}",
        f"{np.abs(values).mean():.3g}",
        f"{values.min():.3g}",
        f"{values.max():.3g}",
    ]
    both = [place for place in advantages if place in tried]
    pairs = np.array([(advantages[place], tried[place]) for place in both]).reshape(-1, 2)
    varies = len(pairs) > 1 and bool((pairs.std(axis=0) > 0).all())
    return [*cells, f"{np.corrcoef(pairs.T)[0, 1]:.3f}" if varies else ""]
