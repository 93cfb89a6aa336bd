"""The store that the pages show: one engine, read in short sessions, and the one way to write.

Everything reads through an engine that cannot write. Labels and what is done to whole runs go
through the writer, which a viewer that was started with `--read-only` never makes.
"""

from collections.abc import Generator
from contextlib import contextmanager

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store import queries
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.addresses import store_url as parsed_url
from longhaul_core.store.session import open_store, read_only_engine
from longhaul_viewer.settings import is_read_only, store_url

__all__ = [
    "FOLLOW_SECONDS",
    "SELDOM_SECONDS",
    "can_write",
    "commit",
    "name",
    "reader",
    "reading",
    "writer",
]

FOLLOW_SECONDS = 3.0
"""How often a page is read again while a run goes on."""
SELDOM_SECONDS = 20.0
"""How often while none does: one may be resumed."""


def name() -> str:
    """The store's address for people, without its password."""
    return describe_store(parsed_url(store_url()))


def reader() -> Engine:
    """The engine that cannot write.

    Raises:
        StoreError: The store cannot be read.
    """
    return _engine(store_url())


@contextmanager
def reading() -> Generator[Session]:
    """A session for the block. It cannot write.

    Raises:
        StoreError: The store cannot be read.
    """
    with store_errors(name()), Session(reader()) as session:
        yield session


def commit(run_id: str) -> int:
    """The run's newest commit: what was read of a run stays true until it is another.

    Raises:
        LookupError: There is no such run.
    """
    with reading() as session:
        return queries.changes_since(session, run_id=run_id).cursor


def can_write() -> bool:
    """Whether this viewer may write."""
    return not is_read_only()


def writer() -> Engine:
    """The engine that may write.

    Raises:
        StoreError: The viewer is read-only.
    """
    if not can_write():
        raise StoreError("this viewer was started with --read-only: it writes nothing")
    return _writer(store_url())


@st.cache_resource(show_spinner=False)
def _writer(url: str) -> Engine:
    return open_store(url, create=False)


@st.cache_resource(show_spinner=False)
def _engine(url: str) -> Engine:
    """One engine for all readers of this process."""
    return read_only_engine(url)
