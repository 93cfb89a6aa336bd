"""The script that Streamlit runs: the style sheet, the list of pages, the page asked for."""

from pathlib import Path

import streamlit as st

from longhaul_core.errors import StoreError
from longhaul_viewer import links
from longhaul_viewer.components import blocks

# A folder called "pages" would be served by Streamlit itself, past this script.
PAGES = Path(__file__).with_name("views")


def app() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="Longhaul", page_icon="🛤️", layout="wide")
    st.html(Path(__file__).with_name("style.css"))
    page = st.navigation(
        [
            st.Page(PAGES / "runs.py", title="Runs", url_path=links.RUNS, default=True),
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
        blocks.html(blocks.alert(str(error.args[0] if error.args else error)))
        st.page_link(PAGES / "runs.py", label="All runs", icon=":material/arrow_back:")
    except StoreError as error:
        blocks.html(blocks.alert(str(error)))


app()
