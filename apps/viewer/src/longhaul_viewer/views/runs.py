"""All runs of the store, newest first, what is wrong with them before anything else."""

from collections.abc import Sequence

import streamlit as st

from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, live, tables
from longhaul_viewer.components.blocks import Badge
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.data import store as store_data

PAGE_SIZE = 50
MOST_ALARMS = 5
"""Runs whose alarms stand above the table; the table marks all."""


def page() -> None:
    """The list, read again every few seconds: a run that starts appears."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        blocks.html(blocks.title("Runs"))
    with right:
        wanted = controls.words("Find a run", "find", hint="name, model, environment, algorithm …")
    live.follow(live_part, seconds=store_data.FOLLOW_SECONDS)(wanted)


def live_part(wanted: str) -> None:
    """Alarms and table as they stand now."""
    after = links.parameter(links.AFTER)
    lines, next_page = runs_data.lines(limit=PAGE_SIZE, after=after)
    if not lines and after is None:
        blocks.html(
            blocks.note(
                f"{store_data.name()} holds no runs yet; a run appears here when it starts"
            ),
            blocks.text_block("uv run trainer train @smoke"),
        )
        return
    shown = [line for line in lines if matches(line, wanted)]
    alarms(shown)
    if shown:
        blocks.html(run_table(shown))
    said = f"{len(shown)} {'run' if len(shown) == 1 else 'runs'} in {store_data.name()}"
    blocks.html(
        blocks.note(f"{said}, of those whose settings hold {wanted!r}" if wanted else said),
        blocks.neighbours(links.RUNS, next_page),
    )


def matches(line: runs_data.RunLine, wanted: str) -> bool:
    """Whether every word that is looked for is in the run's name or settings."""
    settings = line.settings
    text = " ".join(
        [
            line.summary.run_id,
            line.summary.name,
            line.summary.kind,
            line.summary.status,
            settings.model,
            settings.environment,
            settings.algorithm,
        ]
    ).casefold()
    return all(word in text for word in wanted.casefold().split())


def alarms(lines: Sequence[runs_data.RunLine]) -> None:
    """What is wrong, run by run."""
    wrong = [line for line in lines if line.alarms]
    for line in wrong[:MOST_ALARMS]:
        blocks.html(blocks.alarms(line.summary.run_id, line.alarms))
    if len(wrong) > MOST_ALARMS:
        blocks.html(blocks.note(f"{len(wrong) - MOST_ALARMS} more runs have alarms, marked below"))


def run_table(lines: Sequence[runs_data.RunLine]) -> str:
    """One line a run."""
    runs = [line.summary for line in lines]
    return tables.table(
        [
            tables.pairs("Run", [(run.name, run.run_id) for run in runs]),
            tables.badges("State", [state(line) for line in lines]),
            tables.pairs("Training steps", [done(line) for line in lines]),
            tables.curve(
                "Return",
                [
                    [point.mean_return for point in line.sparkline if point.mean_return is not None]
                    for line in lines
                ],
                hint="Mean of the training episodes, by training step",
            ),
            tables.curve(
                "Success",
                [
                    [p.success_rate for p in line.sparkline if p.success_rate is not None]
                    for line in lines
                ],
                low=0.0,
                high=1.0,
                percent=True,
                hint="Share of the training episodes, by training step; the axis is 0 to 100 %",
            ),
            tables.pairs(
                "Panel",
                [panel(line) for line in lines],
                hint="Success on the validation panel, the newest and the first; of the episodes "
                "that ended, where some failed",
            ),
            tables.pairs(
                "Environment, model",
                [(environments(line), line.settings.model or "–") for line in lines],
            ),
            tables.pairs(
                "Algorithm, seed",
                [(line.settings.algorithm or "–", seed(line)) for line in lines],
            ),
            tables.text("Kind", [line.summary.kind for line in lines]),
            tables.pairs(
                "Episodes, steps", [(f"{run.num_episodes:,}", f"{run.num_steps:,}") for run in runs]
            ),
            tables.moment("Started", [run.started_at for run in runs]),
        ],
        addresses=[links.address(links.RUN, run=run.run_id) for run in runs],
    )


def state(line: runs_data.RunLine) -> list[Badge]:
    """The status, and how many alarms there are."""
    count = len(line.alarms)
    alarms = [Badge(f"{count} {'alarm' if count == 1 else 'alarms'}", "bad")] if count else []
    return [runs_data.state(line.summary), *alarms]


def done(line: runs_data.RunLine) -> tuple[str, str]:
    """How far the run is."""
    run = line.summary
    if run.num_training_steps is None:
        return f"{run.num_training_steps_done:,}", "no end set"
    share = run.num_training_steps_done / max(run.num_training_steps, 1)
    return f"{run.num_training_steps_done:,} of {run.num_training_steps:,}", f"{share:.0%}"


def environments(line: runs_data.RunLine) -> str:
    """What the run plays: two names at most."""
    first, *others = (line.settings.environment or "–").split(", ")
    if len(others) < 2:
        return ", ".join([first, *others])
    return f"{first} and {len(others)} more"


def seed(line: runs_data.RunLine) -> str:
    """The run's seed."""
    return "" if line.settings.seed is None else f"seed {line.settings.seed}"


def panel(line: runs_data.RunLine) -> tuple[str, str]:
    """The newest result on the panel and the first."""
    score = line.panel
    if score is None:
        return "–", ""
    newest = f"{score.success_rate:.0%}"
    if score.num_unplayed:
        newest += f" of {blocks.of_planned(score.num_episodes, score.num_unplayed)}"
    return newest, f"was {score.first_success_rate:.0%}"


page()
