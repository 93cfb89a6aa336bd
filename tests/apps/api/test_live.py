"""Two runs write into one SQLite file while ten viewers read it through the API: nothing is lost.

Writers and server are processes of their own, as they are for a user. A viewer goes on as people
do: it pages through the list of a run, opens what it finds, and looks at its curve and its groups.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from sqlalchemy.orm import Session

from apps.api.conftest import StartApi
from longhaul_api.client import Client
from longhaul_core.exchange import EpisodeWhere
from longhaul_core.store import open_store, queries
from store_samples import make_training_step

TESTS = Path(__file__).parents[2]
RUNS = ("run-1", "run-2")
TRAINING_STEPS = 6
VIEWERS = 10
EPISODES = TRAINING_STEPS * 2 * 4
"""Of each run."""

WRITER = """
import sys
from longhaul_core.store import Heartbeat, Metrics, RunEnded, StoreWriter
from store_samples import make_credit, make_decisions, make_training_step, run_started

store, run_id, num_training_steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
with StoreWriter(store) as writer:
    writer.write([run_started(run_id)])
    for training_step in range(1, num_training_steps + 1):
        episodes = make_training_step(training_step, run_id=run_id)
        for episode in episodes:  # as they end
            writer.write([episode])
        writer.write([*make_decisions(episodes), *(make_credit(each) for each in episodes)])
        measured = Metrics(
            run_id=run_id, attempt=0, training_step=training_step, values={"loss": training_step}
        )
        writer.write([measured, Heartbeat(run_id=run_id, attempt=0, at=float(training_step))])
        writer.flush()
        if training_step == 1:
            sys.stdin.readline()  # until each viewer has looked once
    writer.write([RunEnded(run_id=run_id, attempt=0, status="finished", message="", ended_at=9e9)])
"""


@pytest.mark.slow
def test_two_runs_and_ten_viewers_on_one_file_lose_nothing(
    tmp_path: Path, running_api: StartApi, quick_python: str
) -> None:
    store = str(tmp_path / "store.db")
    open_store(store).dispose()
    server = running_api(store)
    over = Event()
    all_have_looked = Barrier(VIEWERS + 1)
    with ThreadPoolExecutor(VIEWERS) as pool:
        viewers = [
            pool.submit(look, server.address, RUNS[n % 2], all_have_looked, over)
            for n in range(VIEWERS)
        ]
        writers = [writing(store, run_id, python=quick_python) for run_id in RUNS]
        all_have_looked.wait(timeout=300)
        for writer in writers:
            print(file=writer.stdin, flush=True)
        said = [writer.communicate(timeout=300)[0] for writer in writers]
        over.set()
        seen = [viewer.result(timeout=300) for viewer in viewers]

    assert [(each.returncode, text) for each, text in zip(writers, said, strict=True)] == [
        (0, "")
    ] * 2
    engine = open_store(store)
    with Session(engine) as session:
        assert [run.status for run in queries.list_runs(session)] == ["finished"] * 2
        for run_id in RUNS:
            expected = {
                each.episode_id
                for step in range(1, TRAINING_STEPS + 1)
                for each in make_training_step(step, run_id=run_id)
            }
            assert len(expected) == EPISODES
            where = queries.EpisodeFilter(run_id=run_id)
            rows = queries.list_episodes(session, where=where, limit=1_000).rows
            assert {row.episode_id for row in rows} == expected
            assert all(row.trained for row in rows)
            [losses] = queries.metric_series(session, run_id=run_id, names=["loss"]).values()
            assert [point.training_step for point in losses] == list(range(1, TRAINING_STEPS + 1))
            assert len(queries.list_groups(session, run_id=run_id, limit=1_000).rows) == (
                2 * TRAINING_STEPS
            )
            assert queries.violations(session, run_id=run_id) == []
    engine.dispose()
    for number, (at_first, at_last) in enumerate(seen):
        assert 0 < at_first < at_last == EPISODES, f"viewer {number}"


def writing(store: str, run_id: str, *, python: str) -> subprocess.Popen[str]:
    """A process that writes a run; it says nothing unless something breaks."""
    return subprocess.Popen(
        [python, "-c", WRITER, store, run_id, str(TRAINING_STEPS)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def look(address: str, run_id: str, all_have_looked: Barrier, over: Event) -> tuple[int, int]:
    """Look at a run again and again until it is over, and then once more; any error is raised.

    Returns how many episodes the first look and the last one saw.
    """
    with Client(address) as client:
        while run_id not in [run.run_id for run in client.runs()] or not client.curve(run_id):
            assert not over.is_set()
        before: set[str] = set()
        at_first = 0
        last = False
        while not last:
            last = over.is_set()
            rows = list(client.episodes(run_id, where=EpisodeWhere(phase="train")))
            ids = {row.episode_id for row in rows}
            assert len(ids) == len(rows)
            assert before <= ids, "an episode that was there is gone"
            before = ids
            for row in rows[:2]:
                assert len(client.episode(row.episode_id, tokens=True).steps) == row.num_steps
            assert sum(group.num_episodes for group in client.groups(run_id)) >= len(rows)
            assert sum(point.num_episodes for point in client.curve(run_id)) >= len(rows)
            if not at_first:
                at_first = len(rows)
                all_have_looked.wait(timeout=300)
    return at_first, len(before)
