"""All pages of the viewer: a line each, in the order of the bar at the top."""

from pathlib import Path
from typing import NamedTuple

from longhaul_viewer import links

__all__ = ["PAGES", "Page"]

# A folder called "pages" would be served by Streamlit itself, past the script.
VIEWS = Path(__file__).with_name("views")


class Page(NamedTuple):
    """One page."""

    title: str
    address: str
    """Its path, from `links`."""
    view: str
    """Its file in `views/`, without the ending."""
    in_bar: bool = False
    """Whether it can be opened by itself, and so stands in the bar; others need a run."""

    @property
    def file(self) -> Path:
        """The script that draws it."""
        return VIEWS / f"{self.view}.py"


PAGES = (
    Page("Runs", links.RUNS, "runs", in_bar=True),
    Page("Run", links.RUN, "run"),
    Page("Episodes", links.EPISODES, "episodes"),
    Page("Groups", links.GROUPS, "groups"),
    Page("Group", links.GROUP, "group"),
    Page("Replay", links.REPLAY, "replay"),
    Page("Compare", links.COMPARE, "compare", in_bar=True),
    Page("SQL", links.SQL, "sql", in_bar=True),
    Page("Play", links.PLAY, "play", in_bar=True),
    Page("Storage", links.STORAGE, "storage", in_bar=True),
)
