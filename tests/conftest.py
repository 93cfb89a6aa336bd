"""What every test runs under, how tests are shared out, and a database server for several.

Two processes share out all tests: one begins with the training runs, which wait for each other
and for their processes most of the time, and the other with the rest.
"""

import contextlib
import gc
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from sqlalchemy import make_url
from sqlalchemy.engine import URL
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# How long an example takes says more about the machine than about the code.
settings.register_profile("longhaul", deadline=None)
settings.load_profile("longhaul")


TOGETHER = {
    "training": "training",  # one run at a time, and one undisturbed run for many tests
    "core/store": "postgresql",
    "apps": "apps",  # one sample store
}
"""Folders whose tests run in one process, and the name of their group."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for all tests; none besides this one where somebody names a few."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Training runs come first: they take longest."""
    items.sort(key=lambda item: group_of(item.nodeid) != "training")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Groups go to one process as a whole, in the order of their tests."""
    return GroupScheduling(config, log)


class GroupScheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The tests that run in one process with this one: a folder's, or else its file's."""
    file = nodeid.partition("::")[0]
    groups = (group for folder, group in TOGETHER.items() if file.startswith(f"tests/{folder}/"))
    return next(groups, file)


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


@pytest.fixture(scope="module", autouse=True)
def no_process_that_describes_an_environment_outlives_its_module() -> Iterator[None]:
    """Such a process lives as long as its source, which is kept for the next question."""
    yield
    sources: Any = sys.modules.get("longhaul_envs.sources")
    if sources is not None:
        sources._source.cache_clear()
        gc.collect()
