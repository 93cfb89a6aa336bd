"""One run: its curves, followed while it goes on, and what it was evaluated on."""

import streamlit as st

from longhaul_core.store.queries import RunSummary
from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, charts, tables
from longhaul_viewer.components.blocks import Badge, Link

TONES: dict[str, blocks.Tone] = {
    "running": "plain",
    "finished": "good",
    "failed": "bad",
    "cancelled": "warn",
}


def page() -> None:
    """The whole page; the part that changes is read again while the run goes on."""
    run_id = links.parameter("run")
    if run_id is None:
        raise LookupError("the address names no run; open one from the list of runs")
    run = data.run(run_id)
    going = run.status == "running"
    st.fragment(live_part, run_every=data.FOLLOW_SECONDS if going else None)(run_id, going)


def live_part(run_id: str, was_going: bool) -> None:
    """Header, curves and metrics as they stand now."""
    run = data.run(run_id)
    if was_going and run.status != "running":
        st.rerun()
    header(run)
    overview(run_id)
    evaluations(run_id)
    metrics(run_id)


def header(run: RunSummary) -> None:
    """What the run is and how far it is."""
    planned = "" if run.num_training_steps is None else f" of {run.num_training_steps}"
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link(run.name)]),
        blocks.title(run.run_id),
        blocks.badges(
            [
                Badge(data.status(run), TONES[run.status]),
                Badge(f"{run.num_training_steps_done}{planned} training steps"),
                Badge(f"{run.num_episodes:,} episodes"),
                Badge(f"{run.num_steps:,} steps"),
                Badge(
                    f"{run.num_failed_episodes:,} failed",
                    "bad" if run.num_failed_episodes else "plain",
                ),
            ]
        ),
    )
    if run.message:
        blocks.html(blocks.alert(run.message))
    blocks.html(blocks.button(Link("Episodes", links.address(links.EPISODES, run=run.run_id))))


def overview(run_id: str) -> None:
    """Return, success and length, training beside the validation panel."""
    curve = data.curve(run_id)
    left, middle, right = st.columns(3, gap="medium")
    with left:
        charts.show(charts.curves(curve.returns, title="Mean return"), key="returns")
    with middle:
        charts.show(charts.curves(curve.success, title="Success rate", percent=True), key="success")
    with right:
        charts.show(charts.curves(curve.lengths, title="Steps per episode"), key="lengths")


def evaluations(run_id: str) -> None:
    """What the run was measured on, before and after."""
    rows = data.evaluations(run_id)
    if not rows:
        return
    blocks.html(
        blocks.label("Evaluations"),
        tables.table(
            [
                tables.text("Panel", [f"{row.panel} ({row.split})" for row in rows]),
                tables.value("After training step", [row.training_step for row in rows], form="d"),
                tables.value("Episodes", [row.num_episodes for row in rows], form=",d"),
                tables.value("Mean return", [row.mean_return for row in rows]),
                tables.bar("Success rate", [row.success_rate for row in rows]),
            ]
        ),
    )


def metrics(run_id: str) -> None:
    """Any stored metric, selected from a list of names."""
    names = data.metric_names(run_id)
    if not names:
        return
    blocks.html(blocks.label("Metrics", f"{len(names)} stored"))
    chosen = st.multiselect(
        "Metrics", names, default=names[:3], key="metrics", label_visibility="collapsed"
    )
    columns = st.columns(3, gap="medium")
    for position, series in enumerate(data.metric_series(run_id, chosen)):
        with columns[position % 3]:
            charts.show(charts.curves([series], title=series.name), key=f"metric-{series.name}")


page()
