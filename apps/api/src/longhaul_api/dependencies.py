"""What routes are handed: a session for reading, one per request."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.store.addresses import store_errors


def read_session(request: Request) -> Iterator[Session]:
    """Open a session for one request. Nothing in this app commits."""
    engine: Engine = request.app.state.engine
    with store_errors("the store"), Session(engine) as session:
        yield session


ReadSession = Annotated[Session, Depends(read_session)]
