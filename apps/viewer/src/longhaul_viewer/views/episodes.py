"""The episodes of a run: filtered, sorted, a page at a time; a click replays one."""

import streamlit as st

from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, tables
from longhaul_viewer.components.blocks import Link

PAGE_SIZE = 100
PHASES = ("train", "baseline", "validation", "test")
OUTCOMES: tuple[data.Outcome, ...] = ("solved", "not solved", "failed")


def page() -> None:
    """Filters above, episodes below."""
    run_id = links.parameter("run")
    if run_id is None:
        raise LookupError("the address names no run; open one from the list of runs")
    run = data.run(run_id)
    address = links.address(links.RUN, run=run_id)
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link(run.name, address), Link("Episodes")]),
        blocks.title("Episodes"),
    )
    wanted = filters(run_id)
    total = data.episodes(wanted, offset=0, limit=1).total
    number = page_number(total)
    found = data.episodes(wanted, offset=number * PAGE_SIZE, limit=PAGE_SIZE).rows
    if not found:
        st.info("No episode matches.")
        return
    clicked = tables.clicked_row(
        {
            "phase": tables.text("Phase", [row.phase for row in found], width="small"),
            "step": tables.value("Training step", [row.training_step for row in found], form="%d"),
            "group": tables.value("Group", [row.group_index for row in found], form="%d"),
            "position": tables.value("Episode", [row.position for row in found], form="%d"),
            "task": tables.text("Task", [row.goal or row.task_id for row in found]),
            "outcome": tables.text("Outcome", [data.outcome(row) for row in found]),
            "return": tables.value("Return", [row.episode_return for row in found]),
            "steps": tables.value("Steps", [row.num_steps for row in found], form="%d"),
            "invalid": tables.value(
                "Invalid actions", [row.num_invalid_actions for row in found], form="%d"
            ),
            "tokens": tables.value(
                "Tokens written", [row.num_action_tokens for row in found], form="%d"
            ),
            "advantage": tables.value(
                "Advantage", [row.episode_advantage for row in found], hint="The episode part"
            ),
            "seconds": tables.value(
                "Seconds", [row.duration_seconds for row in found], form="%.2f"
            ),
        },
        key="episodes",
        height=640,
    )
    if clicked is not None:
        st.switch_page("views/replay.py", query_params={"episode": found[clicked].episode_id})


def filters(run_id: str) -> data.EpisodeQuery:
    """What the reader wants to see; starts from the address, so a filtered list can be linked."""
    phase, outcome, training_step, order, direction = st.columns([2, 3, 2, 2, 1.4])
    with phase:
        chosen_phase = st.selectbox("Phase", PHASES, index=None, placeholder="all", key="phase")
    with outcome:
        chosen_outcome = st.segmented_control("Outcome", OUTCOMES, key="outcome")
    with training_step:
        steps = data.training_steps(run_id)
        asked = links.optional_number("training_step")
        chosen_step = st.selectbox(
            "Training step",
            steps,
            index=None if asked not in steps else steps.index(asked),
            placeholder="all",
            key="training-step",
        )
    with order:
        chosen_order = st.selectbox("Sort by", list(data.SORT_KEYS), key="sort")
    with direction:
        descending = st.toggle("Descending", value=True, key="descending")
    return data.EpisodeQuery(
        run_id=run_id,
        phase=chosen_phase,
        outcome=chosen_outcome,
        training_step=chosen_step,
        sort=chosen_order,
        descending=descending,
    )


def page_number(total: int) -> int:
    """Which page of the list; a control appears if there is more than one."""
    num_pages = max(1, -(-total // PAGE_SIZE))
    count, control = st.columns([8, 2], vertical_alignment="center")
    with count:
        blocks.html(blocks.note(f"{total:,} episodes"))
    if num_pages == 1:
        return 0
    with control:
        chosen = st.number_input(f"Page (of {num_pages})", 1, num_pages, key="page-number")
    return int(chosen) - 1


page()
