"""The episodes of a group above each other, and their states as a graph.

One component of ours draws both, and what belongs to the state, step or edge that the reader looks
at. It keeps what is chosen in the address (`estimator`, `edges`, `state`, `edge`, `at`). Two
episodes that are compared are also shown step by step beside each other, read from the API.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from longhaul_viewer.components.modules import script
from longhaul_viewer.server import API_PATH

__all__ = ["group_view"]

_FOLDER = Path(__file__).parent
_STYLES = (_FOLDER / "observed.css", _FOLDER / "group_view.css")
_COMPONENT = component(
    "longhaul_group",
    js=script(_FOLDER / "group_view.js"),
    css="".join(file.read_text("utf-8") for file in _STYLES),
)


def group_view(data: Mapping[str, Any], *, key: str, beside: bool = False) -> None:
    """Draw a group.

    Args:
        data: From `longhaul_viewer.data.groups`.
        key: Of the group; another one begins anew.
        beside: Whether to show what its episodes, two of them, saw and wrote at one step.
    """
    _COMPONENT(key=f"group-{key}", data={**data, "api": API_PATH if beside else None})
