"""Which store the viewer shows, whether it may write into it, and where archives lie.

Streamlit runs pages as scripts, so the command line cannot hand them an object; it
leaves the store's address in the environment, where each page's first read finds it.
"""

import os
from pathlib import Path

from longhaul_core.store.addresses import store_url as parsed_url

__all__ = [
    "ARCHIVES_VARIABLE",
    "READ_ONLY_VARIABLE",
    "STORE_VARIABLE",
    "archives_folder",
    "is_read_only",
    "store_url",
]

STORE_VARIABLE = "LONGHAUL_STORE"
READ_ONLY_VARIABLE = "LONGHAUL_VIEWER_READ_ONLY"
"""Set to anything but nothing: the viewer writes nothing, and nobody plays."""
ARCHIVES_VARIABLE = "LONGHAUL_ARCHIVES"


def store_url() -> str:
    """Path or URL of the store to show; `longhaul.db` in this folder by default."""
    return os.environ.get(STORE_VARIABLE, "longhaul.db")


def is_read_only() -> bool:
    """Whether the viewer was started with `--read-only`."""
    return bool(os.environ.get(READ_ONLY_VARIABLE))


def archives_folder() -> Path:
    """Where archives and backups lie: `archives` beside the store's file, unless one is set."""
    if named := os.environ.get(ARCHIVES_VARIABLE):
        return Path(named)
    url = parsed_url(store_url())
    if url.get_backend_name() == "sqlite" and url.database:
        return Path(url.database).parent / "archives"
    return Path("archives").absolute()
