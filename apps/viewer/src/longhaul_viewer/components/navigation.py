"""Links that open pages of the viewer at once, where a browser would load the application anew."""

from collections.abc import Sequence
from pathlib import Path

from streamlit.components.v2 import component

__all__ = ["follow_links"]

_COMPONENT = component(
    "longhaul_navigation", js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
)


def follow_links(pages: Sequence[str]) -> None:
    """Make links, and points of charts that carry an address, change the page in place.

    Args:
        pages: Paths of the viewer's pages; any other link is left to the browser.
    """
    _COMPONENT(key="navigation", data={"pages": list(pages)})
