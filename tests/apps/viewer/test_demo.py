"""`viewer --demo`: the store that comes with the viewer, and what it has to show."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import Engine, text

from apps.browser import running_viewer
from longhaul_core.store.session import open_store
from longhaul_trainer.config.load import stored_config
from longhaul_viewer.demo import unpack_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = open_store(unpack_demo(tmp_path_factory.mktemp("demo")))
    yield engine
    engine.dispose()


@pytest.mark.parametrize(
    ("what", "sql", "at_least"),
    [
        ("environments", "SELECT count(DISTINCT environment) FROM episode_summary", 4),
        ("runs", "SELECT count(*) FROM runs WHERE status = 'finished'", 4),
        ("pictures", "SELECT count(DISTINCT content_hash) FROM episode_media", 20),
        ("failures", "SELECT count(*) FROM episode_summary WHERE failed", 1),
        (
            "groups of mixed outcomes",
            "SELECT count(*) FROM (SELECT 1 FROM episode_summary WHERE phase = 'train' GROUP BY "
            "run_id, attempt, training_step, group_index HAVING min(success) < max(success))",
            3,
        ),
        (
            "steps of several calls",
            "SELECT count(*) FROM step_detail WHERE num_calls > 1",
            10,
        ),
        ("agents of one program", "SELECT count(DISTINCT agent) FROM call_detail", 2),
        ("steps that were trained", "SELECT count(*) FROM step_detail WHERE trained", 200),
        ("tasks on a panel, played twice", "SELECT count(*) FROM evaluations", 4),
    ],
)
def test_the_demo_has(demo: Engine, what: str, sql: str, at_least: int) -> None:
    with demo.connect() as connection:
        assert connection.execute(text(sql)).scalar_one() >= at_least, what


def test_the_demo_names_no_machine(demo: Engine) -> None:
    with demo.connect() as connection:
        hosts = connection.execute(text("SELECT host FROM runs UNION SELECT host FROM attempts"))
        assert set(hosts.scalars()) == {None}
        columns = ("SELECT config_json FROM runs", "SELECT provenance_json FROM attempts")
        for column in columns:
            for value in connection.execute(text(column)).scalars():
                assert '"/' not in value
                assert socket.gethostname() not in value or len(socket.gethostname()) < 4


@pytest.mark.slow
def test_the_command_shows_the_demo_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running_viewer(None, tmp_path / "log") as address:
        with urlopen(f"{address}/api/runs", timeout=60) as answer:
            names = {run["name"] for run in json.load(answer)}
        assert list(tmp_path.glob("longhaul-demo-*"))
    assert names == {"four-games", "boxes-gigpo", "boxes-planned", "team", "errands"}
    assert not list(tmp_path.glob("longhaul-demo-*"))


def test_steps_of_its_runs_can_be_taken_up_again(demo: Engine) -> None:
    """Their descriptions have no setting that is gone."""
    with demo.connect() as connection:
        described = connection.execute(text("SELECT config_json FROM runs")).scalars().all()
    games = {
        environment.id
        for config in described
        for environment in stored_config(config, run_id="any").played_environments
    }
    assert len(games) > 3
