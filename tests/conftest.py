"""What every test runs under, how tests are shared out, what may be skipped, and a database server.

Two processes share out all tests: one begins with the training runs, which wait for each other
and for their processes most of the time, and the other with the rest.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from sqlalchemy import create_engine, make_url
from sqlalchemy.engine import URL
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

import selection
from flaky import run_failed_tests_again
from janitor import begin_suite
from news import News, interrupt_after
from skips import refuse_unless_expected
from statement_cache import share_compiled_statements

pytest_plugins = ["machine"]

# How long an example takes says more about the machine than about the code.
settings.register_profile("longhaul", deadline=None)
settings.load_profile("longhaul")

share_compiled_statements()

# Read when Ray is imported: below `uv run` each Ray would copy this folder, and have its workers
# wait until a copy of the environment is installed for it.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

# Two processes share the machine, and torch's threads that wait for each other take its time: tests
# of updates took 120 s of processor time, and 69 s so. It is read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


TOGETHER = {
    "training": "training",  # one run at a time, and one undisturbed run for many tests
    "core/store": "postgresql",
    "core/sql_box": "postgresql",
    "apps": "apps",  # one sample store
    "envs/server": "environment server",  # one Ray at a time
    "trainer/verl": "verl",  # its imports, and the processes that are forked
}
"""Folders whose tests run in one process, and the name of their group."""

LONG = ("training", "envs/server", "trainer/verl", "apps", "contracts", "core")
"""Folders that come first, in this order: training and verl keep a process busy for long, and a
process whose Ray has asked for a token, as verl's does, refuses the calls of one that asks none."""

COMMANDS = ("longhaul_api.main", "longhaul_viewer.main", "longhaul_trainer.cli.main")
"""Modules of the commands that tests start."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line have our options."""
    selection.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Whatever the tests leave behind is ended when this process is gone."""
    if not hasattr(config, "workerinput"):
        begin_suite()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """The process that prints tells of failures at once."""
    plugins = session.config.pluginmanager
    reporter: Any = plugins.get_plugin("terminalreporter")
    if reporter and not hasattr(session.config, "workerinput"):
        plugins.register(News(reporter))
        if seconds := session.config.option.at_most:
            interrupt_after(seconds)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for all tests; none besides this one where somebody names a few."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all left out."""
    leaves_out = collection_path.suffix == ".py" and selection.leaves_out_slow_tests(config)
    return (leaves_out and selection.is_slow_file(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups come first, so that both processes end at nearly one time."""
    if selection.leaves_out_slow_tests(config):
        selection.deselect_slow_tests(config, items)
    items.sort(key=lambda item: _place_of(item.nodeid))


def _place_of(nodeid: str) -> int:
    places = (n for n, folder in enumerate(LONG) if nodeid.startswith(f"tests/{folder}/"))
    return next(places, len(LONG))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After all tests, what failed is run once more."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.option.all and exitstatus == pytest.ExitCode.TESTS_FAILED and reporter:
        run_failed_tests_again(session, reporter)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection makes hardly any garbage; searches for it took a fifth of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What collection has made stays: no search for garbage passes through it after this."""
    _end_what_describes_environments()


def _end_what_describes_environments() -> None:
    """End the processes that do; a source of environments lives as long as it is kept."""
    sources: Any = sys.modules.get("longhaul_envs.sources")
    if sources is not None:
        sources._source.cache_clear()
    gc.collect()
    if not gc.get_freeze_count():  # after collection, or after a test that has thawed it
        gc.freeze()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skips of tests that may not be skipped are failures."""
    report = yield
    refuse_unless_expected(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skips of whole files, too."""
    report = yield
    refuse_unless_expected(report)
    return report


RUN, NOT_RUN = "environment that was run", "environment that was not run"
"""Names of the properties by which the contract suite reports, also from another process."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which environments the contract tests that were selected ran, and why others not."""
    reports = [one for kind in terminalreporter.stats.values() for one in kind]
    properties = [
        (name, value) for one in reports for name, value in getattr(one, "user_properties", ())
    ]
    run = {value for name, value in properties if name == RUN}
    not_run = dict(value for name, value in properties if name == NOT_RUN)
    if run or not_run:
        selected = len(run | not_run.keys())
        terminalreporter.section("environments")
        for environment_id, reason in sorted(not_run.items()):
            terminalreporter.write_line(f"not run: {environment_id}: {reason}")
        terminalreporter.write_line(f"environments run {len(run)} of {selected} selected")


@pytest.fixture(scope="session")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python whose processes are forks of one that has imported our commands.

    It is for tests that need a command in a process of its own, but not what starting one takes.
    Ctrl-C reaches such a process at its own number alone.
    """
    from longhaul_trainer.verl.cpu.zygote import Zygote

    folder = tmp_path_factory.mktemp("commands")
    with Zygote(COMMANDS, folder=folder) as zygote:
        yield str(zygote.stand_in)


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
        address = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        engine = create_engine(address, isolation_level="AUTOCOMMIT")
        with engine.connect() as session:  # not its own `psql`, which a space in its path ends
            session.exec_driver_sql("ALTER SYSTEM SET fsync = off")
            session.exec_driver_sql("SELECT pg_reload_conf()")
        engine.dispose()
        yield address
        os.kill(pid, signal.SIGQUIT)  # an orderly end writes out a hundred databases first
        with contextlib.suppress(psutil.NoSuchProcess):  # it has gone already
            psutil.Process(pid).wait(timeout=60)
        server.cleanup()  # which stops a server that runs, and fails if that ends meanwhile


@pytest.fixture(scope="module", autouse=True)
def no_process_that_describes_an_environment_outlives_its_module() -> Iterator[None]:
    """Such a process lives as long as its source, which is kept for the next question."""
    yield
    _end_what_describes_environments()


@pytest.fixture(scope="module", autouse=True)
def loggers_of_ours_speak() -> None:
    """An engine or a command that ran in this process may have left our loggers silent."""
    logging.disable(logging.NOTSET)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("longhaul") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)
