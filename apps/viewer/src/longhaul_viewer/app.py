"""The script that Streamlit runs: the style sheet, the list of pages, the requested page."""

from pathlib import Path

import streamlit as st

from longhaul_core.errors import StoreError
from longhaul_viewer import links
from longhaul_viewer.components import blocks
from longhaul_viewer.components.blocks import Link

# A folder called "pages" would be served by Streamlit itself, past this script.
PAGES = Path(__file__).with_name("views")


def app() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="Longhaul", page_icon="🛤️", layout="wide")
    st.html(Path(__file__).with_name("style.css"))
    page = st.navigation(
        [
            # Streamlit serves the default page at the root alone, whatever path it asks for.
            st.Page(PAGES / "runs.py", title="Runs", url_path="start", default=True),
            st.Page(PAGES / "runs.py", title="Runs", url_path=links.RUNS),
            st.Page(PAGES / "run.py", title="Run", url_path=links.RUN),
            st.Page(PAGES / "episodes.py", title="Episodes", url_path=links.EPISODES),
            st.Page(PAGES / "group.py", title="Group", url_path=links.GROUP),
            st.Page(PAGES / "replay.py", title="Replay", url_path=links.REPLAY),
        ],
        position="hidden",
    )
    try:
        page.run()
    except LookupError as error:
        message = str(error.args[0] if error.args else error)
        blocks.html(blocks.trail([Link("Runs", links.RUNS)]), blocks.alert(message))
    except StoreError as error:
        blocks.html(blocks.alert(str(error)))


app()
