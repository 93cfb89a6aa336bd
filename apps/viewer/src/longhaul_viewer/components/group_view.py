"""The episodes of a group above each other, and their states as a graph.

One component of ours draws both, and what belongs to the state, step or edge that the reader looks
at. It keeps what is chosen in the address (`estimator`, `edges`, `state`, `edge`, `at`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

__all__ = ["group_view"]

_HERE = Path(__file__)
_COMPONENT = component(
    "longhaul_group",
    js=_HERE.with_suffix(".js").read_text(encoding="utf-8"),
    css=_HERE.with_suffix(".css").read_text(encoding="utf-8"),
)


def group_view(data: Mapping[str, Any], *, key: str) -> None:
    """Draw a group.

    Args:
        data: From `longhaul_viewer.data.groups`.
        key: Of the group; another one begins anew.
    """
    _COMPONENT(key=f"group-{key}", data=dict(data))
