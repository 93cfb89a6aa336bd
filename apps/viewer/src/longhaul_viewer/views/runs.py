"""All runs of the store, newest first; a click opens one."""

import streamlit as st

from longhaul_viewer import data
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
    clicked = tables.clicked_row(
        {
            "name": tables.text("Run", [run.run_id for run in runs], width="large"),
            "status": tables.text("Status", [data.status(run) for run in runs], width="small"),
            "progress": tables.bar("Training steps", [data.progress(run) for run in runs]),
            "curve": tables.curve("Return, by training step", curves),
            "success": tables.bar("Success, last step", [run.last_success_rate for run in runs]),
            "episodes": tables.value("Episodes", [run.num_episodes for run in runs], form="%d"),
            "steps": tables.value("Steps", [run.num_steps for run in runs], form="%d"),
            "started": tables.moment("Started", [run.started_at for run in runs]),
        },
        key="runs",
    )
    if clicked is not None:
        st.switch_page("views/run.py", query_params={"run": runs[clicked].run_id})
    blocks.html(
        blocks.note(f"{len(runs)} {'run' if len(runs) == 1 else 'runs'} in {data.store_name()}")
    )


page()
