"""The groups of a run: those with mixed outcomes first, and why others taught nothing."""

from collections.abc import Sequence

import streamlit as st

from longhaul_core.store.queries import GroupFilter, GroupKey, GroupOutcomes, GroupSummary
from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, live, tables
from longhaul_viewer.components.blocks import Badge, Link
from longhaul_viewer.data import episodes as episodes_data
from longhaul_viewer.data import groups as groups_data
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.data import store as store_data

PAGE_SIZE = 100
MIXED, NO_SIGNAL, DISCARDED, ALL = "mixed outcomes", "no signal", "discarded", "all"
OUTCOMES: dict[str, GroupOutcomes] = {
    MIXED: "mixed",
    "all solved": "solved",
    "none solved": "unsolved",
}
SHOWN = (*OUTCOMES, NO_SIGNAL, DISCARDED, ALL)
REASONS = ("stale", "no_signal", "too_small", "surplus", "stopped_early")


def page() -> None:
    """Filters above, groups below."""
    run_id = links.parameter("run")
    if run_id is None:
        raise LookupError("the address names no run; open one from the list of runs")
    run = runs_data.run(run_id)
    address = links.address(links.RUN, run=run_id)
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link(run.name, address), Link("Groups")]),
        blocks.title("Groups"),
    )
    where = filters()
    going = run.status == "running"
    seconds = store_data.FOLLOW_SECONDS if going else store_data.SELDOM_SECONDS
    live.follow(live_part, seconds=seconds)(run_id, where)


def live_part(run_id: str, where: GroupFilter) -> None:
    """The groups as they stand now."""
    after = links.parameter(links.AFTER)
    found = groups_data.groups(
        run_id, where, after=None if after is None else GroupKey(after), limit=PAGE_SIZE
    )
    if not found.rows:
        blocks.html(
            blocks.note(
                "No group matches. A group is listed once its episodes are stored; show “all”, or "
                "clear the other filters."
            )
        )
        return
    blocks.html(group_table(found.rows), blocks.neighbours(links.GROUPS, found.next_key))


def filters() -> GroupFilter:
    """What the reader wants to see; it stands in the address."""
    shown, phase, training_step, environment, task = st.columns([2, 1.5, 1.5, 2, 2])
    with shown:
        kind = controls.choice("Show", "show", SHOWN, default=MIXED) or MIXED
    with phase:
        chosen_phase = controls.choice(
            "Phase", "phase", episodes_data.PHASES, default="train", every="train"
        )
    with training_step:
        step = controls.number("Training step", "training_step", whole=True)
    with environment:
        chosen_environment = controls.words("Environment", "environment", hint="its whole id")
    with task:
        task_id = controls.words("Task", "task", hint="its whole id")
    reason = None
    if kind == DISCARDED:
        reason = controls.choice("Why it was discarded", "reason", REASONS, default=REASONS[0])
    return GroupFilter(
        phase=chosen_phase,
        min_training_step=None if step is None else int(step),
        max_training_step=None if step is None else int(step),
        environment=chosen_environment or None,
        task_id=task_id or None,
        outcomes=OUTCOMES.get(kind),
        has_signal=False if kind == NO_SIGNAL else None,
        discard_reason=reason,
    )


def group_table(found: Sequence[GroupSummary]) -> str:
    """One line a group, which opens it."""
    return tables.table(
        [
            tables.long("Task", [row.goal or row.task_id for row in found]),
            tables.pairs("Environment", [(row.environment, row.task_id) for row in found]),
            tables.value("Training step", [row.training_step for row in found], form="d"),
            tables.value("Group", [row.group_index for row in found], form="d"),
            tables.badges("Signal", [signal(row) for row in found]),
            tables.bar("Solved", [row.success_rate for row in found]),
            tables.pairs(
                "Returns", [returns(row) for row in found], hint="Lowest to highest, and the mean"
            ),
            tables.value(
                "Largest |advantage|",
                [row.max_abs_advantage for row in found],
                hint="Of a step, as it was trained with",
            ),
            tables.pairs("Episodes", [episodes(row) for row in found]),
        ],
        addresses=[links.group_address(row.group_id) for row in found],
    )


def signal(row: GroupSummary) -> list[Badge]:
    """Whether the policy learned something from the group, and if not, why."""
    if row.discard_reason is not None:
        return [Badge(f"discarded: {row.discard_reason.replace('_', ' ')}", "warn")]
    if row.has_signal is None:
        return [Badge("no credit" if row.phase == "train" else row.phase)]
    if row.has_signal:
        return [Badge("signal", "good")]
    return [Badge("no signal: every advantage is 0", "warn")]


def returns(row: GroupSummary) -> tuple[str, str]:
    """Lowest to highest, and the mean."""
    if row.min_return is None:
        return "–", ""
    span = f"{blocks.number(row.min_return)} to {blocks.number(row.max_return)}"
    alike = row.min_return == row.max_return
    return blocks.number(
        row.min_return
    ) if alike else span, f"mean {blocks.number(row.mean_return)}"


def episodes(row: GroupSummary) -> tuple[str, str]:
    """How many ended of those that were requested, and failed tries."""
    asked = f" of {row.group_size}" if row.group_size not in (None, row.num_episodes) else ""
    failed = row.num_failed_episodes
    tries = "try" if failed == 1 else "tries"
    return f"{row.num_episodes}{asked}", f"{failed} failed {tries}" if failed else ""


page()
