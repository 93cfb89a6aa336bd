"""What the list of runs shows: each run with its settings, its curves and what is wrong with it."""

import time
from collections.abc import Sequence
from textwrap import shorten
from typing import NamedTuple

from longhaul_core.health import HealthWarning
from longhaul_core.store import queries
from longhaul_core.store.queries import PanelScore, RunSettings, RunSummary, SparkPoint
from longhaul_core.store.records import UNSCORED
from longhaul_viewer import links
from longhaul_viewer.components.blocks import Badge
from longhaul_viewer.data.store import reading

__all__ = ["Alarm", "RunLine", "alarms_of", "lines", "run", "state", "status"]

MAX_FAILURE_RATE = 0.05
"""Of episodes: beyond it, what broke is looked at before what was learnt."""


class Alarm(NamedTuple):
    """Something wrong with a run: what, by which number, and what to do."""

    message: str
    advice: str
    address: str
    """Where it can be seen."""


class RunLine(NamedTuple):
    """One run of the list."""

    summary: RunSummary
    settings: RunSettings
    sparkline: Sequence[SparkPoint]
    panel: PanelScore | None
    alarms: Sequence[Alarm]


def lines(*, limit: int, after: str | None = None) -> tuple[list[RunLine], str | None]:
    """Runs, newest first, each with all that a line shows; as many questions for one as for all.

    Returns:
        The lines, and the key of the next page if there is one.
    """
    with reading() as session:
        found = queries.list_runs(session, limit=limit + 1, after=after)
        runs = found[:limit]
        run_ids = [one.run_id for one in runs]
        settings = queries.run_settings(session, run_ids=run_ids)
        sparklines = queries.sparklines(session, run_ids)
        panels = queries.panel_scores(session, run_ids=run_ids)
        health = queries.health_warnings(session, run_ids=run_ids)
        findings = queries.audit_findings(session, run_ids=run_ids)
    next_page = runs[-1].run_id if len(found) > limit else None
    shown = [
        RunLine(
            summary=one,
            settings=settings[one.run_id],
            sparkline=sparklines[one.run_id],
            panel=panels.get(one.run_id),
            alarms=_alarms(one, health.get(one.run_id), findings.get(one.run_id, 0)),
        )
        for one in runs
    ]
    return shown, next_page


def run(run_id: str) -> RunSummary:
    """One run; `LookupError` if there is none."""
    with reading() as session:
        return queries.get_run(session, run_id=run_id).summary


def alarms_of(run: RunSummary) -> list[Alarm]:
    """What is wrong with one run."""
    with reading() as session:
        health = queries.health_warnings(session, run_ids=[run.run_id])
        findings = queries.audit_findings(session, run_ids=[run.run_id])
    return _alarms(run, health.get(run.run_id), findings.get(run.run_id, 0))


def status(run: RunSummary) -> str:
    """The run's status, and how long it has been silent if it should not be."""
    now = time.time()
    if queries.is_silent(run.status, run.heartbeat_at, now=now):
        return f"silent for {_duration(now - run.heartbeat_at)}"
    return run.status


def state(run: RunSummary) -> Badge:
    """The run's status as a badge."""
    text = status(run)
    match run.status:
        case "finished":
            return Badge(text, "good")
        case "failed":
            return Badge(text, "bad")
        case "cancelled":
            return Badge(text, "warn")
        case _:
            return Badge(text, "plain" if text == "running" else "bad")


def _alarms(
    run: RunSummary, health: tuple[int, list[HealthWarning]] | None, num_findings: int
) -> list[Alarm]:
    def tab(name: str) -> str:
        return links.address(links.RUN, run=run.run_id, tab=name)

    found: list[Alarm] = []
    now = time.time()
    if queries.is_silent(run.status, run.heartbeat_at, now=now):
        found.append(
            Alarm(
                f"no sign of life for {_duration(now - run.heartbeat_at)}",
                f"process {run.pid or '?'} on {run.host or 'an unknown host'} was probably killed: "
                f"`trainer resume {run.run_id}` goes on from its last checkpoint",
                tab("provenance"),
            )
        )
    if run.status == "failed":
        found.append(
            Alarm(
                "the run failed",
                f"{shorten(run.message, 300) or 'see its log'}; once that is mended, "
                f"`trainer resume {run.run_id}` goes on from its last checkpoint",
                tab("provenance"),
            )
        )
    ended = run.num_episodes + run.num_failed_episodes
    in_loss_or_curve = run.kind not in UNSCORED
    if in_loss_or_curve and ended and run.num_failed_episodes / ended > MAX_FAILURE_RATE:
        found.append(
            Alarm(
                f"{run.num_failed_episodes:,} of {ended:,} episodes failed",
                "they are in no loss: look at the causes before the curves",
                tab("failures"),
            )
        )
    if num_findings:
        found.append(
            Alarm(
                f"the audit has {num_findings:,} {'finding' if num_findings == 1 else 'findings'}",
                "what was trained is not what was configured: read them before the curves",
                tab("audit"),
            )
        )
    if health is not None:
        training_step, warnings = health
        found.extend(
            Alarm(
                f"{warning.message} (training step {training_step})",
                warning.advice,
                _place_of(warning, run.run_id, training_step),
            )
            for warning in warnings
        )
    return found


def _place_of(warning: HealthWarning, run_id: str, training_step: int) -> str:
    """Groups without a signal are seen among the groups, anything else in its curve."""
    if warning.metric == "groups/without_signal":
        return links.address(links.GROUPS, run=run_id, show="all", training_step=training_step)
    return links.address(links.RUN, run=run_id, metric=[warning.metric])


def _duration(seconds: float) -> str:
    """A length of time in one unit."""
    for size, unit in ((86_400, "days"), (3_600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} min"
