"""What every test runs under, and the database server that several ask for."""

import contextlib
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings
from sqlalchemy import make_url
from sqlalchemy.engine import URL

# How long an example takes says more about the machine than about the code.
settings.register_profile("longhaul", deadline=None)
settings.load_profile("longhaul")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[URL]:
    """The address of a server that lives as long as the tests do."""
    # Not pytest's own folder: the server runs as another user, who may not look into that.
    with tempfile.TemporaryDirectory() as folder:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            # The server's package wants a runtime folder, which a container often lacks.
            patch.setenv("XDG_RUNTIME_DIR", folder)
            from pgserver.postgres_server import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        pid = server.get_pid()
        assert pid is not None
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        yield make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        os.kill(pid, signal.SIGQUIT)  # an orderly end writes out a hundred databases first
        server.cleanup()
    with contextlib.suppress(psutil.NoSuchProcess):  # it has gone already
        psutil.Process(pid).wait(timeout=60)
