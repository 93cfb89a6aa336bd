"""The script that Streamlit runs: the style sheet, the bar, and the page that the address names."""

from pathlib import Path

import streamlit as st

from longhaul_viewer.components import blocks, live, navigation
from longhaul_viewer.components.blocks import Link
from longhaul_viewer.pages import PAGES

START = "start"
"""Streamlit serves the default page at the root alone, whatever path it asks for."""


def app() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="Longhaul", page_icon="🛤️", layout="wide")
    st.html(Path(__file__).with_name("style.css"))
    pages = {one.address: st.Page(one.file, title=one.title, url_path=one.address) for one in PAGES}
    start = st.Page(PAGES[0].file, title=PAGES[0].title, url_path=START, default=True)
    page = st.navigation([start, *pages.values()], position="hidden")
    here = PAGES[0].address if page.url_path in ("", START) else page.url_path
    entries = [Link(one.title, one.address) for one in PAGES if one.in_bar]
    navigation.follow_links([one.address for one in PAGES])
    blocks.html(blocks.bar(entries, here=here))
    live.or_say_why(page.run)()


app()
