"""What every test runs under, how tests are shared out, and a database server for several.

Two processes share out all tests: one begins with the training runs, which wait for each other
and for their processes most of the time, and the other with the rest.
"""

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


TESTS = Path(__file__).parent
TOGETHER = {
    "training": "training",  # one run at a time, and one undisturbed run for many tests
    "core/store": "postgresql",
    "apps": "apps",  # one sample store
}
"""Folders whose tests run in one process, and the name of their group."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for all tests; none besides this one where somebody names a few."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files stay whole, for the sake of what their tests share; training runs begin at once."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
    items.sort(key=lambda item: group_of(item.path) != "training")


def group_of(path: Path) -> str:
    """The tests that run in one process with those of this file: a folder's, or the file's own."""
    name = path.relative_to(TESTS).as_posix()
    folders = (group for folder, group in TOGETHER.items() if name.startswith(f"{folder}/"))
    return next(folders, name)


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
