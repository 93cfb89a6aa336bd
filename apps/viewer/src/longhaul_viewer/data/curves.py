"""What the page of a run shows: curves of one or several, settings, audits, failures.

What is read again every few seconds is cached under the run's commit number: nothing is asked twice
while nothing was written.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import streamlit as st

from longhaul_core.store import queries
from longhaul_core.store.queries import (
    AuditDetail,
    CurvePoint,
    EvaluationResult,
    FailureKey,
    FailurePage,
    RunDetail,
)
from longhaul_viewer import links
from longhaul_viewer.components.charts import Series
from longhaul_viewer.data.store import commit, reading
from longhaul_viewer.settings import store_url

__all__ = [
    "OVERVIEW",
    "Setting",
    "audits",
    "detail",
    "evaluations",
    "failure_causes",
    "failures",
    "flat",
    "metric_names",
    "metric_series",
    "over_seeds",
    "overview",
    "provenance",
    "run_ids",
    "settings",
    "smoothed",
]

PHASES = ("train", "baseline", "validation", "test")
OF_A_RUN_ITSELF = ("seed", "name", "store", "runs_directory", "trackers")
"""Settings in which two runs of one experiment differ."""
OVERVIEW = ("Mean return", "Success rate", "Steps per episode")
FAILURES_PER_PAGE = 200


class Setting(NamedTuple):
    """One setting, with its value in each of several runs; None where it does not stand."""

    name: str
    values: Sequence[str | None]

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it."""
        return len(set(self.values)) > 1


def run_ids(*, limit: int = 500) -> list[str]:
    """The newest runs."""
    with reading() as session:
        return [run.run_id for run in queries.list_runs(session, limit=limit)]


def detail(run_id: str) -> RunDetail:
    """A run with its configuration and attempts; `LookupError` if there is none."""
    with reading() as session:
        return queries.get_run(session, run_id=run_id)


def overview(run_ids: Sequence[str]) -> dict[str, list[Series]]:
    """Return, success and length of each run, a series a phase, by the names in `OVERVIEW`."""
    found: dict[str, list[Series]] = {name: [] for name in OVERVIEW}
    for run_id in run_ids:
        points = _curve(store_url(), run_id, commit(run_id))
        for phase in PHASES:
            of = [point for point in points if point.phase == phase]
            values = (
                [point.mean_return for point in of],
                [point.success_rate for point in of],
                [point.mean_num_steps for point in of],
            )
            steps = [point.training_step for point in of]
            for name, row in zip(OVERVIEW, values, strict=True):
                found[name].append(_series(run_id, phase, steps, row))
    return {name: [one for one in series if one.values] for name, series in found.items()}


def metric_names(run_ids: Sequence[str]) -> list[str]:
    """Names of the metrics of any of the runs, in alphabetical order."""
    names = {
        name for run_id in run_ids for name in _metric_names(store_url(), run_id, commit(run_id))
    }
    return sorted(names)


def metric_series(run_ids: Sequence[str], names: Sequence[str]) -> dict[str, list[Series]]:
    """The named metrics, each with a series for each run that has it."""
    found: dict[str, list[Series]] = {name: [] for name in names}
    for run_id in run_ids:
        of_run = _metric_series(store_url(), run_id, commit(run_id), tuple(names))
        for name, (steps, values) in of_run.items():
            if values:
                found[name].append(_series(run_id, "train", steps, values))
    return found


def evaluations(run_id: str) -> list[EvaluationResult]:
    """Results on the run's panels."""
    with reading() as session:
        return queries.evaluations(session, run_id=run_id)


def audits(run_id: str) -> list[AuditDetail]:
    """Audits of the run, newest first."""
    with reading() as session:
        return queries.list_audits(session, run_id=run_id)


def failure_causes(run_id: str) -> dict[str, int]:
    """How many episodes failed, by cause, the most frequent first."""
    with reading() as session:
        return queries.failure_causes(session, run_id=run_id)


def failures(run_id: str, *, cause: str | None, after: FailureKey | None) -> FailurePage:
    """A page of failed episodes, the newest training step first."""
    with reading() as session:
        return queries.failures(
            session, run_id=run_id, cause=cause, after=after, limit=FAILURES_PER_PAGE
        )


def settings(run_ids: Sequence[str]) -> list[Setting]:
    """All settings of the runs, by name, as they were resolved when each began."""
    configs = [flat(json.loads(detail(run_id).config_json)) for run_id in run_ids]
    names = sorted({name for config in configs for name in config})
    return [Setting(name, [config.get(name) for config in configs]) for name in names]


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """The leaves of a tree of settings under dotted names, each as JSON.

    An entry of a list of tables is named by its place, from 0: `environments.0.id`.
    """
    found: dict[str, str] = {}
    for name, value in tree.items():
        below = value
        listed = cast("list[Any]", value) if isinstance(value, list) else []
        if any(isinstance(one, Mapping) for one in listed):
            below = {str(place): one for place, one in enumerate(listed)}
        if isinstance(below, Mapping) and below:
            found |= flat(cast("Mapping[str, Any]", below), f"{above}{name}.")
        else:
            found[f"{above}{name}"] = json.dumps(value, ensure_ascii=False)
    return found


def provenance(provenance_json: str) -> dict[str, dict[str, str]]:
    """What is needed to repeat an attempt, by section, as people write it; nothing unknown."""
    parts: dict[str, dict[str, str]] = {}
    for dotted, leaf in flat(json.loads(provenance_json)).items():
        section, _, name = dotted.rpartition(".")
        value = json.loads(leaf)
        match value:
            case None | "" | []:
                continue
            case str():
                said = value
            case list():
                said = shlex.join(map(str, cast("list[Any]", value)))
            case _:
                said = leaf
        parts.setdefault(section or "start", {})[name] = said
    return parts


def smoothed(series: Series, share: float) -> Series:
    """The exponential moving average of a series, in which the past keeps `share`.

    It begins at the first value: early values are not drawn towards 0.

    Args:
        series: In order of training step.
        share: In [0, 1).
    """
    values: list[float] = []
    mean = weight = 0.0
    for value in series.values:
        mean = share * mean + (1 - share) * value
        weight = share * weight + (1 - share)
        values.append(mean / weight)
    return series._replace(values=values)


def over_seeds(series: Sequence[Series]) -> list[Series]:
    """One series for the runs that differ in their seed alone: their mean, from least to largest.

    A run without a like is left as it is. A training step counts the runs that have it.
    """
    together: dict[tuple[str, str], list[Series]] = {}
    for one in series:
        together.setdefault((_experiment(store_url(), one.run_id), one.phase), []).append(one)
    return [_band(likes) if len(likes) > 1 else likes[0] for likes in together.values()]


def _band(likes: Sequence[Series]) -> Series:
    values: dict[int, list[float]] = {}
    for one in likes:
        for step, value in zip(one.training_steps, one.values, strict=True):
            values.setdefault(step, []).append(value)
    steps = sorted(values)
    return likes[0]._replace(
        name=f"{len(likes)} seeds of {likes[0].run_id}, {likes[0].phase}",
        training_steps=steps,
        values=[sum(values[step]) / len(values[step]) for step in steps],
        least=[min(values[step]) for step in steps],
        most=[max(values[step]) for step in steps],
    )


def _series(
    run_id: str, phase: str, steps: Sequence[int], values: Sequence[float | None]
) -> Series:
    known = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    return Series(
        name=phase,
        training_steps=[step for step, _ in known],
        values=[value for _, value in known],
        style="line" if phase == "train" else "points",
        run_id=run_id,
        phase=phase,
        addresses=[
            links.address(links.EPISODES, run=run_id, phase=phase, from_step=step, to_step=step)
            for step, _ in known
        ],
    )


@st.cache_data(max_entries=200, show_spinner=False)
def _curve(url: str, run_id: str, commit: int) -> list[CurvePoint]:
    with reading() as session:
        return queries.training_curve(session, run_id=run_id)


@st.cache_data(max_entries=200, show_spinner=False)
def _metric_names(url: str, run_id: str, commit: int) -> list[str]:
    with reading() as session:
        return queries.metric_names(session, run_id=run_id)


@st.cache_data(max_entries=200, show_spinner=False)
def _metric_series(
    url: str, run_id: str, commit: int, names: tuple[str, ...]
) -> dict[str, tuple[list[int], list[float]]]:
    with reading() as session:
        found = queries.metric_series(session, run_id=run_id, names=names)
    known = {
        name: [(p.training_step, p.value) for p in points if p.value is not None]
        for name, points in found.items()
    }
    return {name: ([s for s, _ in of], [v for _, v in of]) for name, of in known.items()}


@st.cache_data(max_entries=500, show_spinner=False)
def _experiment(url: str, run_id: str) -> str:
    """A run's settings but for those that are its own, as text."""
    config = json.loads(detail(run_id).config_json)
    return json.dumps(
        {name: value for name, value in config.items() if name not in OF_A_RUN_ITSELF},
        sort_keys=True,
    )
