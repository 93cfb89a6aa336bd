"""Which store the viewer shows.

Streamlit runs pages as scripts, so the command line cannot hand them an object; it
leaves the store's address in the environment, where each page's first read finds it.
"""

import os

__all__ = ["STORE_VARIABLE", "store_url"]

STORE_VARIABLE = "LONGHAUL_STORE"


def store_url() -> str:
    """Path or URL of the store to show; `longhaul.db` in this folder by default."""
    return os.environ.get(STORE_VARIABLE, "longhaul.db")
