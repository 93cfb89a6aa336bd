"""The addresses of the pages: what a link names, and how a page reads it back.

A shared link must open on the same run, episode and step, so these are query
parameters and never only session state. Ids come from people's address bars: a page
treats them as text to look up, and nothing else.
"""

from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from longhaul_core.store.queries import GroupId

__all__ = [
    "AFTER",
    "COMPARE",
    "EPISODES",
    "GROUP",
    "GROUPS",
    "PLAY",
    "REPLAY",
    "RUN",
    "RUNS",
    "SQL",
    "STORAGE",
    "address",
    "address_here",
    "group_address",
    "group_id",
    "optional_number",
    "parameter",
    "parameters",
    "set_parameters",
    "whole_number",
]

RUNS, RUN, EPISODES, REPLAY = "runs", "run", "episodes", "replay"
GROUPS, GROUP, COMPARE = "groups", "group", "compare"
SQL, STORAGE, PLAY = "sql", "storage", "play"


AFTER = "after"
"""Where a page of a list begins: behind the row with this key, as the store gave it."""
Values = str | int | float | Sequence[str] | None
"""What a parameter is set to; None for nothing."""


def address(page: str, /, **parameters: Values) -> str:
    """Relative address of a page with its query parameters.

    None leaves one out; several words are said one after another, as `run=a&run=b`.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    query = urlencode(given, doseq=True)
    return f"{page}?{query}" if query else page


def address_here(page: str, /, **changed: Values) -> str:
    """Relative address of this page as it is now, with some of its parameters changed."""
    return address(page, **(_all_parameters() | changed))


def group_address(group: GroupId) -> str:
    """Relative address of a group's page."""
    return address(
        GROUP,
        run=group.run_id,
        attempt=group.attempt,
        phase=group.phase,
        training_step=group.training_step,
        group=group.group_index,
    )


def parameter(name: str) -> str | None:
    """A query parameter of this page, None if the address does not have it."""
    return st.query_params.get(name)


def parameters(name: str) -> list[str]:
    """All values of a query parameter of this page, in order."""
    return st.query_params.get_all(name)


def whole_number(name: str, *, highest: int = 2**31 - 1) -> int:
    """A query parameter as a number in [0, highest]; 0 if it is missing or no number."""
    return min(optional_number(name) or 0, highest)


def optional_number(name: str) -> int | None:
    """A query parameter as a number; None if it is missing or no whole number."""
    text = parameter(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def group_id() -> GroupId:
    """The group that this page's address names.

    Raises:
        LookupError: The address names no group.
    """
    run_id, phase = parameter("run"), parameter("phase")
    if run_id is None or phase is None:
        raise LookupError("the address names no group; open one from an episode's replay")
    return GroupId(
        run_id=run_id,
        attempt=whole_number("attempt"),
        phase=phase,
        training_step=whole_number("training_step"),
        group_index=whole_number("group"),
    )


def set_parameters(**changed: Values) -> None:
    """Change the address of this page without leaving it; None takes a parameter out.

    All of them make one entry in the browser's history.
    """
    kept = {name: value for name, value in _all_parameters().items() if name not in changed}
    given = {
        name: [value] if isinstance(value, str | int | float) else list(value)
        for name, value in changed.items()
        if value is not None
    }
    texts = {name: [str(value) for value in values] for name, values in given.items()}
    st.query_params.from_dict(kept | texts)


def _all_parameters() -> dict[str, list[str]]:
    return {name: st.query_params.get_all(name) for name in st.query_params}
