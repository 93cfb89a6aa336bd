"""All runs of the store, newest first; a click opens one."""

import streamlit as st

from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, tables


def page() -> None:
    """The list, read again every few seconds while a run goes on."""
    blocks.html(blocks.title("Runs"))
    runs = data.runs()
    if not runs:
        st.info("This store holds no runs yet. Start one with `uv run trainer`.")
        return
    following = any(run.status == "running" for run in runs)
    st.fragment(run_table, run_every=data.FOLLOW_SECONDS if following else None)()


def run_table() -> None:
    """One line a run."""
    runs = data.runs()
    curves = [data.training_returns(run.run_id) for run in runs]
    shown = tables.table(
        [
            tables.text("Run", [run.run_id for run in runs]),
            tables.text("Status", [data.status(run) for run in runs]),
            tables.bar("Training steps", [data.progress(run) for run in runs]),
            tables.curve("Return, by training step", curves),
            tables.bar("Success, last step", [run.last_success_rate for run in runs]),
            tables.value("Episodes", [run.num_episodes for run in runs], form=",d"),
            tables.value("Steps", [run.num_steps for run in runs], form=",d"),
            tables.moment("Started", [run.started_at for run in runs]),
        ],
        addresses=[links.address(links.RUN, run=run.run_id) for run in runs],
    )
    count = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {data.store_name()}"
    blocks.html(shown, blocks.note(count))


page()
