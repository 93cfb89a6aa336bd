"""How large the store is and what of it can go: archive, restore, back up, prune, delete."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from longhaul_core.errors import StoreError
from longhaul_core.store.queries import RunSummary
from longhaul_viewer import links
from longhaul_viewer.components import blocks, controls, live, tables
from longhaul_viewer.components.blocks import Badge, Tone
from longhaul_viewer.data import runs as runs_data
from longhaul_viewer.data import storage as storage_data
from longhaul_viewer.data import store as store_data
from longhaul_viewer.data import work
from longhaul_viewer.settings import archives_folder

PROBLEM, PRUNE = "storage_problem", "storage_prune"
WORK_SECONDS = 3.0
TONES: dict[str, Tone] = {
    "done": "good",
    "failed": "bad",
    "running": "warn",
    "waits": "plain",
    "cancelled": "plain",
}
MOST_NAMED = 12


def page() -> None:
    """Sizes on the left, what can be done on the right, what is being done above both."""
    sizes = storage_data.sizes()
    whole = sizes.whole
    blocks.html(
        blocks.title("Storage"),
        blocks.badges(
            [
                Badge(store_data.name()),
                Badge(blocks.size(whole.num_bytes)),
                Badge(f"{len(sizes.summaries):,} runs"),
                Badge(f"{whole.num_episodes:,} episodes"),
                Badge(f"{whole.num_steps:,} steps"),
                *([Badge(f"{whole.bytes_per_step:,.0f} bytes a step")] if whole.num_steps else []),
            ]
        ),
    )
    if problem := st.session_state.pop(PROBLEM, None):
        blocks.html(blocks.alert(problem))
    seconds = WORK_SECONDS if work_goes_on() else store_data.SELDOM_SECONDS
    live.follow(work_part, seconds=seconds)(work.ended())
    left, right = st.columns([5, 3], gap="large")
    with left:
        blocks.html(blocks.label("Runs", "about, by a sample of each run's episodes"))
        blocks.html(size_table(sizes))
        blocks.html(blocks.label("Archives and backups", f"in {archives_folder()}"))
        files = storage_data.archives()
        blocks.html(archive_table(files, schemas=[storage_data.schema_of(each) for each in files]))
        if parts := storage_data.cut_short():
            blocks.html(blocks.label("Cut short", "files whose writing did not come to its end"))
            blocks.html(archive_table(parts))
    with right:
        if not store_data.can_write():
            blocks.html(
                blocks.label("What can be done"),
                blocks.note(
                    "This viewer was started with --read-only. Start it without, or use "
                    "`trainer runs archive`, `restore`, `backup`, `prune` and `delete`."
                ),
            )
            return
        of_run(sizes)
        of_store(sizes)
        of_archives(files, sizes)
        of_parts()


def work_part(had_ended: tuple[float, ...]) -> None:
    """What is being done and what came of it; the page is drawn anew when something has ended."""
    if work.ended() != had_ended:
        st.rerun(scope="app")
    if found := work.pieces():
        blocks.html(
            tables.table(
                [
                    tables.text("Asked for", [each.title for each in found]),
                    tables.badges(
                        "State", [[Badge(each.state, TONES[each.state])] for each in found]
                    ),
                    tables.moment("When", [each.asked_at for each in found]),
                    tables.long("What came of it", [each.said for each in found]),
                ]
            )
        )


def size_table(sizes: storage_data.Sizes) -> str:
    """A line a run, the largest first."""
    if not sizes.summaries:
        return blocks.note(
            "The store holds no runs yet. One appears here when it starts, and the archives below "
            "can be restored."
        )
    rows = sizes.runs
    whole = max(1, sum(row.num_bytes for row in rows))

    def of(title: str, values: Sequence[int], hint: str) -> tables.Column:
        return tables.Column(title, [blocks.size(each) for each in values], numeric=True, hint=hint)

    return tables.table(
        [
            tables.pairs(
                "Run",
                [
                    (
                        row.run_id,
                        f"{runs_data.status(sizes.summaries[row.run_id])}, "
                        f"{row.num_episodes:,} episodes, {row.num_steps:,} steps",
                    )
                    for row in rows
                ],
            ),
            of("Size", [row.num_bytes for row in rows], "The sum of the four kinds"),
            tables.bar("Of the store", [row.num_bytes / whole for row in rows]),
            of("Text", [row.text_bytes for row in rows], "Steps, observations, calls, messages"),
            of("Tokens", [row.token_bytes for row in rows], "Tokens, logprobs, loss inputs"),
            of("Pictures", [row.picture_bytes for row in rows], "Shared ones count in part"),
            of("Index", [row.index_bytes for row in rows], "What makes words findable"),
        ],
        addresses=[links.address(links.RUN, run=row.run_id) for row in rows],
    )


def archive_table(
    files: Sequence[storage_data.Archive], *, schemas: Sequence[str] | None = None
) -> str:
    """A line a file, the newest first; None for `schemas` where a file is not whole."""
    if not files:
        return blocks.note(
            "None yet. An archive is a store of one run, a backup a copy of the whole store; "
            "both open with `viewer --store FILE`."
        )
    return tables.table(
        [
            tables.text("File", [each.name for each in files]),
            tables.Column("Size", [blocks.size(each.num_bytes) for each in files], numeric=True),
            tables.moment("Written", [each.written_at for each in files]),
            *([] if schemas is None else [tables.long("Schema", schemas)]),
        ]
    )


def of_run(sizes: storage_data.Sizes) -> None:
    """Archive one run, drop its tokens, delete it."""
    blocks.html(blocks.label("One run"))
    run_id = controls.choice("Run", "run", list(sizes.summaries), every="choose a run")
    if run_id is None:
        blocks.html(blocks.note("Choose a run to archive it, to drop its tokens or to delete it."))
        return
    run = sizes.summaries[run_id]
    going = runs_data.status(run) == "running"
    archive, tokens, delete = st.columns(3)
    with archive:
        do("Archive", partial(storage_data.archive, run_id))
    with tokens, st.popover("Drop tokens", width="stretch", disabled=going):
        blocks.html(
            blocks.note(
                f"Deletes the tokens and logprobs of {run_id}. Text, numbers and credit stay; the "
                "run can be audited and exported as tokens no more. This cannot be undone."
            )
        )
        drop = partial(storage_data.delete, [run_id], tokens_only=True)
        do(f"Drop the tokens of {run_id}", drop, harmful=True)
    with delete, st.popover("Delete", width="stretch", disabled=going):
        blocks.html(blocks.note(f"{what_goes(run)} This cannot be undone; archive it first."))
        do(
            f"Delete {run_id}",
            partial(storage_data.delete, [run_id], tokens_only=False),
            harmful=True,
        )
    if going:
        blocks.html(blocks.note(f"It is running: `trainer runs cancel {run_id}` stops it first."))


def of_store(sizes: storage_data.Sizes) -> None:
    """Back up, index, prune."""
    blocks.html(blocks.label("The whole store", "runs may go on meanwhile"))
    back_up, index, prune = st.columns(3)
    with back_up:
        if sizes.is_file:
            do("Back up", storage_data.back_up)
        else:
            blocks.html(blocks.note("A PostgreSQL store is backed up with pg_dump."))
    with index:
        do("Index text", storage_data.index)
    with prune:
        # What a rule lets go is asked of every run: only once somebody wants to know.
        popover = st.popover("Prune", width="stretch", key=PRUNE, on_change="rerun")
    if popover.open:
        with popover:
            of_rule()


def of_rule() -> None:
    """Delete the runs that a rule lets go, or their tokens."""
    older = st.number_input("Ended more than so many days ago", min_value=0, value=30)
    best = st.number_input(
        "Keep the best", min_value=0, value=3, help="Those with the highest return on a panel"
    )
    tokens_only = st.toggle("Only their tokens and logprobs")
    found = storage_data.prunable(older_than_days=float(older), keep_best=int(best))
    names = [run.run_id for run in found]
    if not names:
        blocks.html(blocks.note("No run fits both conditions."))
        return
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    what = "lose their tokens" if tokens_only else "would be deleted"
    said = ", ".join(names[:MOST_NAMED])
    blocks.html(blocks.note(f"These {what}: {said}{more}. This cannot be undone."))
    verb = "Drop the tokens of" if tokens_only else "Delete"
    do(
        f"{verb} {len(names)} {'run' if len(names) == 1 else 'runs'}",
        partial(storage_data.delete, names, tokens_only=tokens_only),
        harmful=True,
    )


def of_archives(files: Sequence[storage_data.Archive], sizes: storage_data.Sizes) -> None:
    """Restore a run."""
    blocks.html(blocks.label("Restore a run"))
    if not files:
        blocks.html(blocks.note("There is no archive and no backup to restore from."))
        return
    name = controls.choice("From", "archive", [each.name for each in files], every="choose a file")
    if name is None:
        return
    held = storage_data.runs_in(name)
    missing = [run.run_id for run in held if run.run_id not in sizes.summaries]
    if in_part := [] if work_goes_on() else shorter(held, sizes):
        blocks.html(
            blocks.alert(f"The store has {', '.join(in_part)} in part: delete it, then restore it.")
        )
        if not missing:
            return
    if not missing:
        blocks.html(
            blocks.note(
                f"Every run of {name} ({', '.join(run.run_id for run in held) or 'none'}) is in "
                "the store already."
            )
        )
        return
    run_id = st.selectbox("Its run", missing)
    do("Restore", partial(storage_data.restore, name, run_id))


def shorter(held: Sequence[storage_data.HeldRun], sizes: storage_data.Sizes) -> list[str]:
    """Runs of which the store has less than an archive: a copy of them was cut short."""
    stored = {run.run_id: (run.num_episodes, run.num_steps) for run in sizes.runs}
    return [
        run.run_id
        for run in held
        if run.run_id in sizes.summaries
        and stored.get(run.run_id, (0, 0)) < (run.num_episodes, run.num_steps)
    ]


def work_goes_on() -> bool:
    """Whether something that was asked for has not ended."""
    return any(not each.future.done() for each in work.pieces())


def of_parts() -> None:
    """Remove what was left of files that were cut short."""
    if parts := storage_data.cut_short():
        blocks.html(
            blocks.label("Cut short", "unless `trainer runs archive` or `backup` is at it now")
        )
        name = st.selectbox("File", [each.name for each in parts])
        do("Remove the file", partial(storage_data.remove_cut_short, name), harmful=True)


def what_goes(run: RunSummary) -> str:
    """What a delete takes away."""
    return (
        f"Deletes {run.run_id}: {run.num_episodes + run.num_failed_episodes:,} episodes, "
        f"{run.num_steps:,} steps, its curves, audits and labels."
    )


def do(label: str, act: Callable[[], None], *, harmful: bool = False) -> None:
    """A button; what goes wrong is said when the page is drawn again."""

    def click() -> None:
        try:
            act()
        except (LookupError, StoreError) as error:
            st.session_state[PROBLEM] = str(error)

    kind = "primary" if harmful else "secondary"
    st.button(label, on_click=click, type=kind, width="stretch", key=f"do-{label}")


page()
