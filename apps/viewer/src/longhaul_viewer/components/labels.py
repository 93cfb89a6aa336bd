"""Labels and notes on an episode or a step, shown and written."""

from collections.abc import Sequence

import streamlit as st

from longhaul_core.errors import StoreError
from longhaul_core.store.queries import LabelDetail
from longhaul_viewer.components import blocks, tables
from longhaul_viewer.data import labels as labels_data
from longhaul_viewer.data import store as store_data

__all__ = ["label_panel"]

NAMES = ("note", "good", "bad", "bug", "reward hack")
"""Offered; any other can be typed."""


@st.fragment
def label_panel(episode_id: str, step_index: int | None) -> None:
    """The labels of an episode and of one of its steps, with a form to add and change one's own.

    Args:
        episode_id: The episode.
        step_index: The step that is shown; None: a new label is for the whole episode.
    """
    found = [
        label
        for label in labels_data.of_episode(episode_id)
        if label.step_index is None or label.step_index == step_index
    ]
    blocks.html(blocks.label("Labels and notes"), _shown(found))
    if not store_data.can_write():
        return
    key = f"label-{episode_id}-{step_index}"
    with st.form(key, clear_on_submit=True, border=False):
        name, value, target, add = st.columns([1.2, 3, 1.2, 0.8], vertical_alignment="bottom")
        with name:
            st.selectbox("Name", NAMES, accept_new_options=True, key=f"{key}-name")
        with value:
            st.text_input("Remark", key=f"{key}-value")
        with target:
            st.toggle("This step", value=True, key=f"{key}-step", disabled=step_index is None)
        with add:
            st.form_submit_button(
                "Save", width="stretch", on_click=_save, args=(key, episode_id, step_index)
            )
    if problem := st.session_state.pop(f"{key}-problem", None):
        blocks.html(blocks.alert(problem))
    mine = [label for label in found if label.author == labels_data.author()]
    if mine:
        with st.popover("Remove one of mine"):
            for at, label in enumerate(mine):
                st.button(
                    f"{label.name}{_where(label)}",
                    key=f"{key}-remove-{at}",
                    on_click=_remove,
                    args=(episode_id, label),
                )


def _shown(found: Sequence[LabelDetail]) -> str:
    if not found:
        return blocks.note("none yet")
    return tables.table(
        [
            tables.text("Name", [label.name for label in found]),
            tables.long("Remark", [label.value for label in found]),
            tables.text("Of", [_where(label).strip(" ()") or "the episode" for label in found]),
            tables.text("By", [label.author for label in found]),
            tables.moment("When", [label.created_at for label in found]),
        ]
    )


def _where(label: LabelDetail) -> str:
    return "" if label.step_index is None else f" (step {label.step_index})"


def _save(key: str, episode_id: str, step_index: int | None) -> None:
    """Write what the form holds; what went wrong is said when the form is drawn again."""
    form = {name: st.session_state[f"{key}-{name}"] for name in ("name", "value", "step")}
    of_step = step_index if form["step"] else None
    try:
        labels_data.put(episode_id, of_step, name=form["name"] or "", value=form["value"])
    except StoreError as error:
        st.session_state[f"{key}-problem"] = str(error)


def _remove(episode_id: str, label: LabelDetail) -> None:
    labels_data.remove(episode_id, label.step_index, name=label.name)
