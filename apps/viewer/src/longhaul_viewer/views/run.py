"""One run, or several: curves, followed while they go on; settings, provenance, audit, failures."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
import streamlit as st

from longhaul_core.audit import RULES
from longhaul_core.store.queries import EvaluationResult, FailureKey, RunSummary
from longhaul_viewer import links
from longhaul_viewer.components import blocks, charts, controls, live, tables
from longhaul_viewer.components.blocks import Badge, Link
from longhaul_viewer.data import curves as curves_data
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.data import store as store_data

USUAL = (
    "actor/entropy",
    "episodes/invalid_action_rate",
    "groups/without_signal",
    "agreement/logprob_difference_mean",
    "actor/grad_norm",
    "actor/clip_fraction",
    "imitation/loss",
)
"""Metrics that are looked at first, where a run has them."""
MOST_CHARTS = 24
SMOOTHING = ("0.5", "0.8", "0.9", "0.95", "0.98")
MOST_FINDINGS = 500
CLAIMS = {rule.name: rule.claim for rule in RULES}


def page() -> None:
    """The header, and the part of the page that the address names."""
    run_ids = links.parameters("run")
    if not run_ids:
        raise LookupError("the address names no run; open one from the list of runs")
    parts: dict[str, Callable[[Sequence[str]], None]] = {
        "curves": curves,
        "config": config,
        "provenance": provenance,
        "audit": audit,
        "failures": failures,
    }
    tab = links.parameter("tab") or "curves"
    if tab not in parts:
        raise LookupError(f"the address asks for tab {tab!r}; there are {', '.join(parts)}")
    run = runs_data.run(run_ids[0])
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link(run.name)]),
        blocks.title(" and ".join(run_ids)),
    )
    live.follow(header, seconds=_pace(run_ids))(run_ids)
    here = [
        Link(name.capitalize(), links.address_here(links.RUN, tab=name, **{links.AFTER: None}))
        for name in parts
    ]
    blocks.html(
        blocks.tabs(
            [
                *here,
                Link("Episodes", links.address(links.EPISODES, run=run_ids[0])),
                Link("Groups", links.address(links.GROUPS, run=run_ids[0])),
            ],
            here=tab.capitalize(),
        )
    )
    parts[tab](run_ids)


def _pace(run_ids: Sequence[str]) -> float:
    """Seconds between two looks: often while a run goes on, seldom afterwards (it may resume)."""
    going = any(runs_data.run(run_id).status == "running" for run_id in run_ids)
    return store_data.FOLLOW_SECONDS if going else store_data.SELDOM_SECONDS


def header(run_ids: Sequence[str]) -> None:
    """What each run is, how far it is, and what is wrong with it."""
    for run_id in run_ids:
        run = runs_data.run(run_id)
        several = run_id if len(run_ids) > 1 else ""
        blocks.html(blocks.badges(badges(run, several)))
        found = runs_data.alarms_of(run)
        if found:
            blocks.html(blocks.alarms(several, found))
        elif run.message:
            blocks.html(blocks.note(run.message))


def badges(run: RunSummary, name: str) -> list[Badge]:
    """A run in numbers."""
    planned = "" if run.num_training_steps is None else f" of {run.num_training_steps}"
    failed = run.num_failed_episodes
    return [
        *([Badge(name)] if name else []),
        runs_data.state(run),
        Badge(
            f"{run.num_training_steps_done}{planned} training steps"
            if planned
            else counted(run.num_training_steps_done, "training step")
        ),
        Badge(counted(run.num_episodes, "episode")),
        Badge(counted(run.num_steps, "step")),
        Badge(f"{failed:,} failed", "bad" if failed else "plain"),
        *([Badge(f"resumed {counted(run.attempt, 'time')}")] if run.attempt else []),
    ]


def curves(run_ids: Sequence[str]) -> None:
    """Controls above, curves below."""
    widths = [3, 2, 3, 1.2, 1.6]
    runs, find, pick, smooth, switches = st.columns(widths, vertical_alignment="bottom")
    known = curves_data.run_ids()
    with runs:
        shown = controls.choices(
            "Runs", "run", list(dict.fromkeys([*run_ids, *known])), hint="overlay a run", least=1
        )
    names = curves_data.metric_names(run_ids)
    with find:
        words = controls.words("Metrics named", "find", hint="part of a name, e.g. entropy")
    with pick:
        usual = [name for name in USUAL if name in names]
        chosen = controls.choices(
            f"Metrics ({len(names)})", "metric", names, default=usual, hint="type a name"
        )
    with smooth:
        smoothing = controls.choice("Smoothing", "smoothing", SMOOTHING, every="none")
    with switches:
        log = controls.switch("Log axis", "log")
        bands = controls.switch(
            "Bands over seeds",
            "seeds",
            help_text="Runs that differ in their seed alone become one line: their mean, in a band "
            "from the least to the largest",
        )
    found = [name for name in names if words and words.casefold() in name.casefold()]
    asked = found if words else chosen
    draw = Drawing(
        run_ids=shown,
        metrics=asked[:MOST_CHARTS],
        share=float(smoothing or 0.0),
        log=log,
        bands=bands,
        overview=not words,
    )
    if words and not found:
        blocks.html(blocks.note(f"no metric's name holds {words!r}"))
    if len(asked) > MOST_CHARTS:
        blocks.html(
            blocks.note(f"the first {MOST_CHARTS} of {len(asked)} metrics; name them more narrowly")
        )
    live.follow(charts_of, seconds=_pace(run_ids))(draw)


class Drawing(NamedTuple):
    """Which curves are drawn, and how."""

    run_ids: Sequence[str]
    metrics: Sequence[str]
    share: float
    """What the past keeps in the moving average, in [0, 1)."""
    log: bool
    bands: bool
    overview: bool
    """Whether return, success and length stand before the metrics."""


def charts_of(draw: Drawing) -> None:
    """The charts as they stand now, three in a row."""
    if len(draw.run_ids) > 1:
        blocks.html(blocks.keys(charts.run_colors(draw.run_ids)))
    columns = st.columns(3, gap="medium")
    all_series: dict[str, list[charts.Series]] = {}
    if draw.overview:
        all_series |= curves_data.overview(draw.run_ids)
    all_series |= curves_data.metric_series(draw.run_ids, draw.metrics)
    drawn = 0
    for name, series in all_series.items():
        if not series:
            continue
        with columns[drawn % 3]:
            charts.show(figure(name, series, draw), key=f"chart-{name}")
        drawn += 1
    if not drawn:
        blocks.html(
            blocks.note("Nothing was measured yet: curves begin with the first training step.")
        )
        return
    blocks.html(blocks.note("A click on a point opens the episodes of its training step."))
    for run_id in draw.run_ids:
        evaluations(run_id, several=len(draw.run_ids) > 1)


def figure(name: str, series: list[charts.Series], draw: Drawing) -> go.Figure:
    """One chart."""
    if draw.bands:
        series = curves_data.over_seeds(series)
    behind: list[charts.Series] = []
    if draw.share:
        behind = [one for one in series if one.style == "line"]
        series = [
            curves_data.smoothed(one, draw.share) if one.style == "line" else one for one in series
        ]
    percent = name == "Success rate"
    return charts.curves(
        series,
        title=name,
        percent=percent,
        log=draw.log and not percent,
        behind=behind,
        run_ids=draw.run_ids,
    )


def evaluations(run_id: str, *, several: bool) -> None:
    """What the run was measured on, before and after."""
    rows = curves_data.evaluations(run_id)
    if not rows:
        return
    unplayed: list[tables.Column] = []
    if any(row.num_unplayed for row in rows):
        unplayed = [tables.text("If the rest were lost or won", [bounds(row) for row in rows])]
    blocks.html(
        blocks.label("Evaluations", run_id if several else ""),
        tables.table(
            [
                tables.text("Panel", [f"{row.panel} ({row.split})" for row in rows]),
                tables.value("After training step", [row.training_step for row in rows], form="d"),
                tables.text(
                    "Episodes",
                    [blocks.of_planned(row.num_episodes, row.num_unplayed) for row in rows],
                ),
                tables.value("Mean return", [row.mean_return for row in rows]),
                tables.bar("Success rate", [row.success_rate for row in rows]),
                *unplayed,
            ],
            addresses=[
                links.address(
                    links.EPISODES,
                    run=run_id,
                    phase=row.split,
                    from_step=row.training_step,
                    to_step=row.training_step,
                )
                for row in rows
            ],
        ),
    )


def bounds(row: EvaluationResult) -> str:
    """The success rate if every episode that failed were lost, and if every one were won."""
    num_unplayed = row.num_unplayed or 0
    num_planned = row.num_episodes + num_unplayed
    lost = row.success_rate * row.num_episodes / num_planned
    return f"{lost:.0%} to {lost + num_unplayed / num_planned:.0%}"


def config(run_ids: Sequence[str]) -> None:
    """The settings, and how they differ from another run's."""
    left, right, switch = st.columns([3, 2, 1.6], vertical_alignment="bottom")
    with left:
        known = list(dict.fromkeys([*run_ids, *curves_data.run_ids()]))
        shown = controls.choices("Runs", "run", known, hint="compare with a run", least=1)
    with right:
        words = controls.words("Settings named", "find", hint="part of a name, e.g. learning_rate")
    with switch:
        several = len(shown) > 1
        differing = controls.switch("Only differences", "differences", default=several)
    found = [
        setting
        for setting in curves_data.settings(shown)
        if words.casefold() in setting.name.casefold()
        and (setting.differs or not (differing and several))
    ]
    if not found:
        what = "setting differs" if not words else f"setting's name holds {words!r}"
        advice = "; switch off Only differences to see all" if several and differing else ""
        blocks.html(blocks.note(f"no {what}{advice}"))
        return
    found.sort(key=lambda setting: None in setting.values)  # what all runs have comes first
    if not several:
        blocks.html(blocks.sections(by_section(found)))
        return
    blocks.html(
        tables.table(
            [
                tables.text("Setting", [setting.name for setting in found]),
                *(
                    tables.long(run_id, [setting.values[at] or "–" for setting in found])
                    for at, run_id in enumerate(shown)
                ),
            ]
        )
    )


def by_section(settings: Sequence[curves_data.Setting]) -> dict[str, list[blocks.Fact]]:
    """Settings of one run under the name of their table."""
    parts: dict[str, list[blocks.Fact]] = {"run": []}
    for setting in settings:
        section, _, name = setting.name.rpartition(".")
        fact = blocks.Fact(name, setting.values[0] or "–", explanation=setting.name)
        parts.setdefault(section or "run", []).append(fact)
    return {name: facts for name, facts in parts.items() if facts}


def provenance(run_ids: Sequence[str]) -> None:
    """What is needed to repeat the run, for each attempt."""
    for run_id in run_ids:
        for attempt in reversed(curves_data.detail(run_id).attempts):
            begins = (
                "the first"
                if attempt.resumes_after_training_step is None
                else f"goes on after training step {attempt.resumes_after_training_step}"
            )
            process = f"{attempt.pid or '?'} on {attempt.host or 'an unknown host'}"
            ended = {
                "status": attempt.status,
                "message": attempt.message,
                "process": process if attempt.pid or attempt.host else "",
            }
            parts = curves_data.provenance(attempt.provenance_json)
            parts["start"] = ended | parts.get("start", {})
            first = {"start": parts.pop("start")} | parts
            blocks.html(
                blocks.label(f"{run_id}, attempt {attempt.attempt}", begins),
                blocks.sections(
                    {
                        section: [blocks.Fact(name, said) for name, said in lines.items() if said]
                        for section, lines in first.items()
                    }
                ),
            )


def audit(run_ids: Sequence[str]) -> None:
    """What the newest audit recomputed, and where it found something else."""
    for run_id in run_ids:
        found = curves_data.audits(run_id)
        if not found:
            blocks.html(
                blocks.note(
                    f"{run_id} was not audited. An audit recomputes from the store alone whether "
                    "what was trained is what was configured:"
                ),
                blocks.text_block(f"uv run trainer audit {run_id}"),
            )
            continue
        newest = found[0]
        count = newest.num_findings
        blocks.html(
            blocks.badges(
                [
                    Badge(counted(count, "finding"), "bad" if count else "good"),
                    Badge(counted(newest.num_training_steps, "training step")),
                    Badge(counted(newest.num_steps, "trained step")),
                    Badge(counted(len(found), "audit")),
                ]
            )
        )
        findings(newest)
        rules = sorted(newest.rules, key=lambda rule: -rule.num_findings)
        blocks.html(
            blocks.label("Rules"),
            tables.table(
                [
                    tables.text("Rule", [rule.name for rule in rules]),
                    tables.value("Findings", [rule.num_findings for rule in rules], form=",d"),
                    tables.value("Checked", [rule.num_checked for rule in rules], form=",d"),
                    tables.long("What is true", [CLAIMS.get(rule.name, "") for rule in rules]),
                ]
            ),
        )
        if skipped := newest.not_checked:
            blocks.html(
                blocks.label("Not checked"),
                tables.table(
                    [
                        tables.text("Rule", [skip.rule or "every" for skip in skipped]),
                        tables.value(
                            "Subjects",
                            [skip.num_subjects for skip in skipped],
                            form=",d",
                        ),
                        tables.long("Reason", [skip.reason for skip in skipped]),
                    ]
                ),
            )


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def findings(audit: curves_data.AuditDetail) -> None:
    """What was found, each with the step that it is about."""
    found = audit.findings[:MOST_FINDINGS]
    if not found:
        return
    blocks.html(
        blocks.label("Findings", f"{len(found)} of {audit.num_findings:,} listed"),
        tables.table(
            [
                tables.text("Rule", [one.rule for one in found]),
                tables.value("Training step", [one.training_step for one in found], form="d"),
                tables.link(
                    "Where",
                    [
                        ("–", None)
                        if one.episode_id is None
                        else (
                            one.episode_id
                            + ("" if one.step_index is None else f" step {one.step_index}"),
                            links.address(
                                links.REPLAY, episode=one.episode_id, step=one.step_index
                            ),
                        )
                        for one in found
                    ],
                ),
                tables.long("Found", [one.found for one in found]),
                tables.long("Expected", [one.expected for one in found]),
            ]
        ),
    )


def failures(run_ids: Sequence[str]) -> None:
    """What broke, and how often."""
    cause = links.parameter("cause")
    causes_of = {run_id: curves_data.failure_causes(run_id) for run_id in run_ids}
    known = list(dict.fromkeys(name for causes in causes_of.values() for name in causes))
    if cause is not None and known and cause not in known:
        raise LookupError(f"the address asks for cause {cause!r}; there are {', '.join(known)}")
    for run_id, causes in causes_of.items():
        if not causes:
            blocks.html(blocks.note(f"No episode of {run_id} failed."))
            continue
        if cause is not None and cause not in causes:
            blocks.html(blocks.note(f"No episode of {run_id} failed for that cause."))
            continue
        total = sum(causes.values())
        entries = [
            Link(
                f"all {total:,}", links.address_here(links.RUN, cause=None, **{links.AFTER: None})
            ),
            *(
                Link(
                    f"{name.replace('_', ' ')} {count:,}",
                    links.address_here(links.RUN, cause=name, **{links.AFTER: None}),
                )
                for name, count in causes.items()
            ),
        ]
        here = 0 if cause is None else 1 + list(causes).index(cause)
        after = links.parameter(links.AFTER) if len(run_ids) == 1 else None
        found = curves_data.failures(
            run_id,
            cause=cause,
            after=None if after is None else FailureKey(after),
        )
        rows, around = found.rows, ""
        if len(run_ids) == 1:
            around = blocks.neighbours(links.RUN, found.next_key)
        elif found.next_key is not None:  # a page's key is of one run
            alone = links.address(links.RUN, run=run_id, tab="failures", cause=cause)
            around = blocks.trail([Link(f"all of {run_id}", alone)])
        blocks.html(
            blocks.label("Failed episodes", f"of {run_id}; they are in no loss and no baseline"),
            blocks.tabs(entries, here=entries[here].text),
            tables.table(
                [
                    tables.text("Task", [row.task_id for row in rows]),
                    tables.text("Cause", [row.cause.replace("_", " ") for row in rows]),
                    tables.text("Phase", [row.phase for row in rows]),
                    tables.value("Training step", [row.training_step for row in rows], form="d"),
                    tables.value("Steps", [row.num_steps for row in rows], form="d"),
                    tables.long("Message", [row.message[:400] for row in rows]),
                ],
                addresses=[links.address(links.REPLAY, episode=row.episode_id) for row in rows],
            ),
            around,
        )


page()
