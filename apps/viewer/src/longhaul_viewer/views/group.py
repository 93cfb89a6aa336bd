"""The attempts at one task side by side: what each did at every step, and what it earned."""

import streamlit as st

from longhaul_viewer import data, links
from longhaul_viewer.components import blocks, charts, tables
from longhaul_viewer.components.blocks import Badge, Link


def page() -> None:
    """A table of the attempts, and their steps above each other."""
    key = links.group_key()
    members = data.group(key)
    first = members[0]
    blocks.html(
        blocks.trail(
            [
                Link("Runs", links.RUNS),
                Link(key.run_id, links.address(links.RUN, run=key.run_id)),
                Link("Episodes", links.address(links.EPISODES, run=key.run_id)),
                Link(f"{key.phase} {key.training_step}, group {key.group_index}"),
            ]
        ),
        blocks.title(first.goal or first.task_id),
        blocks.badges(
            [
                Badge(f"{len(members)} attempts"),
                Badge(f"{sum(bool(one.success) for one in members)} solved", "good"),
                Badge(f"{first.environment} · {first.task_id}"),
            ]
        ),
    )
    clicked = tables.clicked_row(
        {
            "episode": tables.value("Episode", [one.position for one in members], form="%d"),
            "retry": tables.value("Retry", [one.retry for one in members], form="%d"),
            "outcome": tables.text("Outcome", [data.outcome(one) for one in members]),
            "return": tables.value("Return", [one.episode_return for one in members]),
            "advantage": tables.value(
                "Advantage", [one.episode_advantage for one in members], hint="The episode part"
            ),
            "steps": tables.value("Steps", [one.num_steps for one in members], form="%d"),
            "invalid": tables.value(
                "Invalid actions", [one.num_invalid_actions for one in members], form="%d"
            ),
            "tokens": tables.value(
                "Tokens written", [one.num_action_tokens for one in members], form="%d"
            ),
        },
        key="members",
    )
    if clicked is not None:
        st.switch_page("views/replay.py", query_params={"episode": members[clicked].episode_id})
    blocks.html(
        blocks.label(
            "Step by step", "colour: advantage, ★ paid, × invalid; a click replays the step"
        )
    )
    rows = [
        (f"{one.position} · {data.outcome(one)}", data.strip(data.episode(one.episode_id)))
        for one in members
    ]
    picked = charts.clicked_cell(charts.group_map(rows), key="map")
    if picked is not None:
        row, step = picked
        st.switch_page(
            "views/replay.py",
            query_params={"episode": members[row].episode_id, "step": str(step)},
        )


page()
