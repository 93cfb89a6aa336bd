"""The episodes of a run: filtered, sorted, a page at a time; a row replays one."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from longhaul_core.exchange.formats import FORMATS
from longhaul_core.store.queries import EpisodeKey, EpisodeSummary, HistogramColumn
from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, histograms, live, tables
from longhaul_viewer.components.blocks import Link
from longhaul_viewer.data import episodes as episodes_data
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.data import store as store_data

PAGE_SIZE = 100
SORT, ORDER = "sort", "order"
FILTERS = {
    "phase": "phase",
    "outcome": "outcome",
    "cause": "cause of failure",
    "environment": "environment",
    "task": "task",
    "text": "text",
    "from_step": "training step from",
    "to_step": "training step to",
    "min_return": "return from",
    "max_return": "return to",
    "min_length": "steps from",
    "max_length": "steps to",
    "policy_version": "policy version",
}
"""Parameters of the address that restrict the list, and their names for people."""
HISTOGRAMS: tuple[tuple[str, HistogramColumn, str, str], ...] = (
    ("Return", "episode_return", "min_return", "max_return"),
    ("Steps", "num_steps", "min_length", "max_length"),
    ("Training step", "training_step", "from_step", "to_step"),
)


def page() -> None:
    """Filters above, episodes below."""
    run_id = links.parameter("run")
    if run_id is None:
        raise LookupError("the address names no run; open one from the list of runs")
    run = runs_data.run(run_id)
    address = links.address(links.RUN, run=run_id)
    blocks.html(
        blocks.trail([Link("Runs", links.RUNS), Link(run.name, address), Link("Episodes")]),
        blocks.title(f"Episodes of {run_id}"),
    )
    wanted = filters(run_id)
    going = run.status == "running"
    pace = store_data.FOLLOW_SECONDS if going else store_data.SELDOM_SECONDS
    live.follow(live_part, seconds=pace)(wanted)
    exports = [
        f'<a href="{escape(episodes_data.export_address(wanted, name))}" download>{name}</a>'
        for name in FORMATS
    ]
    blocks.html(blocks.label("Export", "this list as a file"), " · ".join(exports))
    with st.expander("This list as SQL"):
        st.code(episodes_data.as_sql(wanted, limit=PAGE_SIZE), language="sql")


def live_part(wanted: episodes_data.EpisodeQuery) -> None:
    """How the episodes are spread, and a page of them, as they stand now."""
    after = links.parameter(links.AFTER)
    found = episodes_data.episodes(
        wanted, after=None if after is None else EpisodeKey(after), limit=PAGE_SIZE
    )
    total = episodes_data.count(wanted)
    blocks.html(
        '<div class="histograms">',
        *(bars(wanted, *histogram) for histogram in HISTOGRAMS),
        "</div>",
    )
    blocks.html(
        blocks.keys({"solved": histograms.SOLVED, "not solved, or failed": histograms.OTHER}),
        blocks.note(f"{total:,} {'episode' if total == 1 else 'episodes'}"),
        blocks.chips(active(), every=links.address(links.EPISODES, run=wanted.run_id)),
        blocks.note(behind()) if wanted.text else "",
    )
    if not found.rows:
        blocks.html(blocks.note(nothing(wanted)))
        return
    blocks.html(
        episode_table(wanted, found.rows), blocks.neighbours(links.EPISODES, found.next_key)
    )


def behind() -> str:
    """How much text cannot be found yet; nothing if all of it can."""
    waiting = episodes_data.waiting_for_index()
    if not waiting:
        return ""
    # Numbers that were given to no step, or whose step is gone, lie between; the newest has one.
    steps = "1 step" if waiting == 1 else f"up to {waiting:,} steps"
    return (
        f"The text of {steps} of the store is not in the index yet, and is not found: a run "
        "indexes its own while it plays, Storage › Index text what is left."
    )


def nothing(wanted: episodes_data.EpisodeQuery) -> str:
    """Why the list is empty, and what to do."""
    if wanted == episodes_data.EpisodeQuery(run_id=wanted.run_id):
        return "No episode has ended yet; the first appear here as they are written."
    return "No episode matches; take a filter out above."


def bars(
    wanted: episodes_data.EpisodeQuery, title: str, column: HistogramColumn, low: str, high: str
) -> str:
    """One histogram, whose bars filter."""
    found = episodes_data.bars(wanted, column)
    whole = column != "episode_return"
    addresses = [
        links.address_here(
            links.EPISODES,
            **{
                low: int(bar.least) if whole else bar.least,
                high: int(bar.most) if whole else bar.most,
                links.AFTER: None,
            },
        )
        for bar in found
    ]
    every = links.address_here(links.EPISODES, **{low: None, high: None, links.AFTER: None})
    restricted = links.parameter(low) is not None or links.parameter(high) is not None
    return histograms.histogram(
        title, found, addresses=addresses, every=every if restricted else None
    )


def active() -> list[Link]:
    """What restricts the list, each with the address that does without it."""
    return [
        Link(
            f"{title}: {links.parameter(name)}",
            links.address_here(links.EPISODES, **{name: None, links.AFTER: None}),
        )
        for name, title in FILTERS.items()
        if links.parameter(name) is not None
    ]


def episode_table(wanted: episodes_data.EpisodeQuery, found: Sequence[EpisodeSummary]) -> str:
    """One line an episode, which opens its replay; the heads sort."""
    labels = episodes_data.labels([row.episode_id for row in found])
    columns = [
        tables.pairs(
            "Task",
            [
                (row.goal or row.task_id, row.task_id if row.goal else row.environment)
                for row in found
            ],
        ),
        tables.badges("Outcome", [[episodes_data.badge(row)] for row in found]),
        tables.signed("Return", [row.episode_return for row in found]),
        tables.signed(
            "Advantage",
            [row.episode_advantage for row in found],
            hint="The episode part; the replay shows the advantage of each step",
        ),
        tables.value("Steps", [row.num_steps for row in found], form="d"),
        tables.value("Invalid", [row.num_invalid_actions for row in found], form="d"),
        tables.value("Tokens", [row.num_action_tokens for row in found], form=",d"),
        tables.text("Phase", [row.phase for row in found]),
        tables.value("Training step", [row.training_step for row in found], form="d"),
        tables.text(
            "Group, episode",
            [f"{row.group_index}, {episodes_data.sample_name(row)}" for row in found],
        ),
        tables.value(
            "Weights",
            [row.newest_policy_version for row in found],
            form="d",
            hint="The newest policy version that sampled it",
        ),
        tables.value("Seconds", [row.duration_seconds for row in found], form=".2f"),
        *(
            [tables.text("Labels", [said(labels[row.episode_id]) for row in found])]
            if any(labels.values())
            else []
        ),
    ]
    heads = {
        "Return": "return",
        "Steps": "steps",
        "Invalid": "invalid actions",
        "Tokens": "tokens written",
        "Training step": "training step",
        "Seconds": "seconds",
    }
    return tables.table(
        [
            sortable(column, heads[column.title], wanted) if column.title in heads else column
            for column in columns
        ],
        addresses=[
            links.address(links.REPLAY, episode=row.episode_id, search=wanted.text) for row in found
        ],
    )


def sortable(column: tables.Column, key: str, wanted: episodes_data.EpisodeQuery) -> tables.Column:
    """The column with a head that sorts by it; a second click turns the order round."""
    here = wanted.sort == key
    turned = "ascending" if here and wanted.descending else None
    return column._replace(
        address=links.address_here(links.EPISODES, **{SORT: key, ORDER: turned, links.AFTER: None}),
        order=("descending" if wanted.descending else "ascending") if here else None,
    )


def said(labels: Sequence[episodes_data.LabelDetail]) -> str:
    """The labels of an episode in a few words."""
    return ", ".join(f"{label.name}: {label.value}"[:60] for label in labels)


def filters(run_id: str) -> episodes_data.EpisodeQuery:
    """What the reader wants to see, from the address."""
    phase, outcome, task, text, more = st.columns([2, 2, 3, 4, 2], vertical_alignment="bottom")
    with phase:
        chosen_phase = controls.choice("Phase", "phase", episodes_data.PHASES)
    with outcome:
        chosen_outcome = controls.choice("Outcome", "outcome", episodes_data.OUTCOMES)
    with task:
        chosen_task = controls.words("Task", "task", hint="a task's id")
    with text:
        chosen_text = controls.words(
            "Text",
            "text",
            hint="words of an observation, a prompt or a reply",
            help_text="Episodes of which one step has all the words",
        )
    with more, st.popover("More filters", width="stretch"):
        ranges = more_filters(run_id)
    sort = links.parameter(SORT) or "training step"
    order = links.parameter(ORDER) or "descending"
    for name, asked, known in (
        (SORT, sort, tuple(episodes_data.SORT_KEYS)),
        (ORDER, order, ("descending", "ascending")),
    ):
        if asked not in known:
            raise LookupError(
                f"the address asks for {name} {asked!r}; there are {', '.join(known)}"
            )
    return ranges._replace(
        phase=chosen_phase,
        outcome=chosen_outcome,
        task=chosen_task or None,
        text=chosen_text or None,
        sort=sort,
        descending=order == "descending",
    )


def more_filters(run_id: str) -> episodes_data.EpisodeQuery:
    """What is asked for less often."""
    cause = controls.choice("Cause of failure", "cause", episodes_data.CAUSES)
    environment = controls.choice("Environment", "environment", episodes_data.environments(run_id))
    left, right = st.columns(2)
    with left:
        from_step = controls.number("Training step from", "from_step", whole=True)
        min_return = controls.number("Return from", "min_return")
        min_length = controls.number("Steps from", "min_length", whole=True)
        version = controls.number("Policy version", "policy_version", whole=True)
    with right:
        to_step = controls.number("to", "to_step", whole=True)
        max_return = controls.number("to", "max_return")
        max_length = controls.number("to", "max_length", whole=True)
    return episodes_data.EpisodeQuery(
        run_id=run_id,
        cause=cause,
        environment=environment,
        from_step=whole(from_step),
        to_step=whole(to_step),
        min_return=min_return,
        max_return=max_return,
        min_length=whole(min_length),
        max_length=whole(max_length),
        policy_version=whole(version),
    )


def whole(number: float | None) -> int | None:
    """A number of a control of whole numbers."""
    return None if number is None else int(number)


page()
