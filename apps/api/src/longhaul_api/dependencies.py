"""What routes are handed: the store, read in sessions that begin and end in one thread.

A session from a dependency with `yield` would be held on the way from the dependency's
thread to the route's, and until the last byte is sent. Some fifty requests at once would
then hold every connection while every thread waits for one.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.store import queries
from longhaul_core.store.addresses import store_errors

__all__ = ["ReadStore", "Store"]


@dataclass(frozen=True, slots=True)
class Store:
    """The store that this app was made for. Nothing in this app commits."""

    engine: Engine

    @contextmanager
    def reading(self, run_id: str | None = None) -> Generator[Session]:
        """A session for the block, which stays in one thread.

        Args:
            run_id: A run that the block is about.

        Raises:
            LookupError: There is no such run.
            StoreError: The store cannot be read.
        """
        with store_errors("the store"), Session(self.engine) as session:
            if run_id is not None and queries.newest_attempt(session, run_id=run_id) is None:
                raise LookupError(f"there is no run {run_id!r} in the store")
            yield session


async def _store(request: Request) -> Store:  # async: needs no thread
    return Store(request.app.state.engine)


ReadStore = Annotated[Store, Depends(_store)]
