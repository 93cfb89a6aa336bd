"""The addresses of the pages: what a link names, and how a page reads it back.

A shared link must open on the same run, episode and step, so these are query
parameters and never only session state. Ids come from people's address bars: a page
treats them as text to look up, and nothing else.
"""

from typing import NamedTuple
from urllib.parse import urlencode

import streamlit as st

__all__ = [
    "EPISODES",
    "GROUP",
    "REPLAY",
    "RUN",
    "RUNS",
    "GroupKey",
    "address",
    "address_here",
    "group_address",
    "group_key",
    "optional_number",
    "parameter",
    "set_parameters",
    "whole_number",
]

RUNS, RUN, EPISODES, GROUP, REPLAY = "runs", "run", "episodes", "group", "replay"


class GroupKey(NamedTuple):
    """What tells one group from every other."""

    run_id: str
    attempt: int
    phase: str
    training_step: int
    group_index: int


def address(page: str, /, **parameters: str | int | None) -> str:
    """Relative address of a page with its query parameters; None leaves one out."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{page}?{query}" if query else page


def address_here(page: str, /, **changed: str | int) -> str:
    """Relative address of this page as it is now, with some of its parameters changed."""
    return address(page, **(dict(st.query_params.items()) | changed))


def group_address(key: GroupKey) -> str:
    """Relative address of a group's page."""
    return address(
        GROUP,
        run=key.run_id,
        attempt=key.attempt,
        phase=key.phase,
        training_step=key.training_step,
        group=key.group_index,
    )


def parameter(name: str) -> str | None:
    """A query parameter of this page, None if the address does not have it."""
    return st.query_params.get(name)


def whole_number(name: str, *, highest: int = 2**31 - 1) -> int:
    """A query parameter as a number in [0, highest]; 0 if it is missing or no number."""
    return min(optional_number(name) or 0, highest)


def optional_number(name: str) -> int | None:
    """A query parameter as a number; None if it is missing or no whole number."""
    text = parameter(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def group_key() -> GroupKey:
    """The group that this page's address names.

    Raises:
        LookupError: The address names no group.
    """
    run_id, phase = parameter("run"), parameter("phase")
    if run_id is None or phase is None:
        raise LookupError("the address names no group; open one from an episode's replay")
    return GroupKey(
        run_id=run_id,
        attempt=whole_number("attempt"),
        phase=phase,
        training_step=whole_number("training_step"),
        group_index=whole_number("group"),
    )


def set_parameters(**parameters: str | int | None) -> None:
    """Change the address of this page without leaving it; None takes a parameter out.

    All of them make one entry in the browser's history.
    """
    changed = {name: value for name, value in parameters.items() if value is not None}
    kept = {name: value for name, value in st.query_params.items() if name not in parameters}
    st.query_params.from_dict(kept | {name: str(value) for name, value in changed.items()})
