"""The episodes of a run: filtered, sorted, a page at a time; a click replays one."""

from collections.abc import Collection, Sequence
from typing import Literal

import streamlit as st

from longhaul_core.store.queries import EpisodeSummary
from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, tables
from longhaul_viewer.components.blocks import Link

PAGE_SIZE = 100
PAGE = "page"
# Streamlit's word for a control whose value stands in the address, under its key.
ADDRESS: Literal["query-params"] = "query-params"
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
    found = read_page(wanted)
    if not found:
        st.info("No episode matches.")
        return
    blocks.html(episode_table(found))


def episode_table(found: Sequence[EpisodeSummary]) -> str:
    """One line an episode, which opens its replay."""
    return tables.table(
        [
            tables.text("Task", [row.goal or row.task_id for row in found]),
            tables.text("Phase", [row.phase for row in found]),
            tables.value("Training step", [row.training_step for row in found], form="d"),
            tables.value("Group", [row.group_index for row in found], form="d"),
            tables.text("Episode", [data.sample_name(row) for row in found]),
            tables.text("Outcome", [data.outcome(row) for row in found]),
            tables.value("Return", [row.episode_return for row in found]),
            tables.value("Steps", [row.num_steps for row in found], form="d"),
            tables.value("Invalid actions", [row.num_invalid_actions for row in found], form="d"),
            tables.value("Tokens written", [row.num_action_tokens for row in found], form=",d"),
            tables.value(
                "Advantage", [row.episode_advantage for row in found], hint="The episode part"
            ),
            tables.value("Seconds", [row.duration_seconds for row in found], form=".2f"),
        ],
        addresses=[links.address(links.REPLAY, episode=row.episode_id) for row in found],
    )


def filters(run_id: str) -> data.EpisodeQuery:
    """What the reader wants to see. It stands in the address, so a filtered list can be linked."""
    for name, known in (("phase", PHASES), ("outcome", OUTCOMES), ("sort", data.SORT_KEYS)):
        require_known(name, known)
    phase, outcome, training_step, order, direction = st.columns([2, 3, 2, 2, 1.4])
    with phase:
        chosen_phase = st.selectbox(
            "Phase",
            PHASES,
            index=None,
            placeholder="all",
            key="phase",
            bind=ADDRESS,
            on_change=to_first_page,
        )
    with outcome:
        chosen_outcome = st.segmented_control(
            "Outcome", OUTCOMES, key="outcome", bind=ADDRESS, on_change=to_first_page
        )
    with training_step:
        chosen_step = st.selectbox(
            "Training step",
            training_steps(run_id),
            index=None,
            placeholder="all",
            key="training_step",
            bind=ADDRESS,
            on_change=to_first_page,
        )
    with order:
        chosen_order = st.selectbox(
            "Sort by", list(data.SORT_KEYS), key="sort", bind=ADDRESS, on_change=to_first_page
        )
    with direction:
        descending = st.toggle(
            "Descending", value=True, key="descending", bind=ADDRESS, on_change=to_first_page
        )
    return data.EpisodeQuery(
        run_id=run_id,
        phase=chosen_phase,
        outcome=chosen_outcome,
        training_step=chosen_step,
        sort=chosen_order,
        descending=descending,
    )


def require_known(name: str, known: Collection[str]) -> None:
    """Refuse what the address asks for if there is no such thing; Streamlit would drop it.

    Raises:
        LookupError: It is not one of `known`.
    """
    asked = links.parameter(name)
    if asked and asked not in known:
        raise LookupError(f"the address asks for {name} {asked!r}; there are {', '.join(known)}")


def training_steps(run_id: str) -> list[int]:
    """Those that have episodes, and the one that the address asks for, which may have none.

    Raises:
        LookupError: The address asks for something that is no training step.
    """
    text = links.parameter("training_step")
    asked = links.optional_number("training_step")
    if text and asked is None:
        raise LookupError(f"the address asks for training step {text!r}, which is no whole number")
    return sorted({*data.training_steps(run_id), *(() if asked is None else (asked,))})


def to_first_page() -> None:
    """Another list begins at its beginning."""
    st.query_params.pop(PAGE, None)


def read_page(wanted: data.EpisodeQuery) -> Sequence[EpisodeSummary]:
    """The page of the list that the address names; links to its neighbours if there are any."""
    number = max(1, links.whole_number(PAGE))
    found = data.episodes(wanted, offset=(number - 1) * PAGE_SIZE, limit=PAGE_SIZE)
    last = max(1, -(-found.total // PAGE_SIZE))
    if number > last:
        number = last
        found = data.episodes(wanted, offset=(number - 1) * PAGE_SIZE, limit=PAGE_SIZE)
    neighbours = [
        Link("previous", links.address_here(links.EPISODES, page=number - 1))
        if number > 1
        else Link("previous"),
        Link(f"page {number} of {last}"),
        Link("next", links.address_here(links.EPISODES, page=number + 1))
        if number < last
        else Link("next"),
    ]
    blocks.html(
        blocks.note(f"{found.total:,} episodes"), blocks.trail(neighbours) if last > 1 else ""
    )
    return found.rows


page()
