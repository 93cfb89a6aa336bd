"""Tests for `longhaul_trainer.verl.run_recorder`: a store that refuses, and a lost writer."""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest
import ray
from sqlalchemy import text
from sqlalchemy.orm import Session

from longhaul_core.errors import StoreError
from longhaul_core.store.queries import count_episodes
from longhaul_core.store.records import Record, RunEnded
from longhaul_core.store.session import read_only_engine
from longhaul_trainer.run import store_retries
from longhaul_trainer.verl import run_recorder as recorder_module
from longhaul_trainer.verl.run_recorder import RunRecorder, WriterLost, WriterStatus, _Writer
from store_samples import make_decisions, make_training_step, run_started
from trainer.verl.local_ray import held, ray_here, recorder_of, refusing, wait_for
from trainer.verl.pythons import Pythons

pytestmark = [
    pytest.mark.usefixtures("cpu_run"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's own imports
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of Ray's own imports
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of Ray's own imports
]


def num_episodes(path: Path) -> int:
    engine = read_only_engine(path)
    with Session(engine) as session:
        total = count_episodes(session)
    engine.dispose()
    return total


def num_removed(path: Path) -> int:
    engine = read_only_engine(path)
    with engine.connect() as connection:
        removed = "SELECT count(*) FROM episodes WHERE retention = 'removed'"
        number: int = connection.execute(text(removed)).scalar_one()
    engine.dispose()
    return number


def ended(status: Literal["finished", "cancelled"]) -> RunEnded:
    return RunEnded(run_id="run", attempt=0, status=status, message="", ended_at=time.time())


def end_of_run(path: Path) -> tuple[str, str]:
    """How the store says that the run's only attempt ended, and why."""
    engine = read_only_engine(path)
    with engine.connect() as connection:
        status, message = connection.execute(text("SELECT status, message FROM attempts")).one()
    engine.dispose()
    return status, message


class TestWriter:
    """The writer in this process, on a store whose lock it waits for 50 ms instead of 30 s."""

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr("longhaul_core.store.session.LOCK_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(store_retries, "FIRST_PAUSE_SECONDS", 0.05)
        return tmp_path / "store.db"

    @pytest.fixture
    def writer(self, path: Path) -> Generator[_Writer]:
        writer = _Writer(str(path), "run", 0, sampled_groups=0)
        writer.write([run_started()])
        yield writer
        writer.close()

    def test_a_store_that_is_held_is_waited_for(
        self, path: Path, writer: _Writer, caplog: pytest.LogCaptureFixture
    ) -> None:
        episodes = make_training_step(1)
        with held(path) as let_go:
            writing = threading.Thread(target=writer.write, args=(episodes,))
            writing.start()
            wait_for(lambda: len(caplog.records) >= 2)
            let_go()
            writing.join(timeout=60)

        assert num_episodes(path) == len(episodes)
        assert re.search(r"no record was taken for \d+ s, trying again", caplog.messages[0])
        assert f"{path}: database is locked" in caplog.messages[0]

    def test_a_store_that_is_held_too_long_is_named_and_the_wait_is_not_begun_again(
        self,
        path: Path,
        writer: _Writer,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(store_retries, "LONGEST_AWAY_SECONDS", 1.0)
        with held(path):
            with pytest.raises(StoreError, match="locked"):
                writer.write(make_training_step(1))
            num_tries = len(caplog.records)
            with pytest.raises(StoreError, match="locked"):
                writer.write(make_training_step(2))

        assert num_tries >= 2
        assert len(caplog.records) == num_tries
        writer.write(make_training_step(3))

    def test_older_training_steps_go_little_by_little_and_the_rest_when_it_ends(
        self, path: Path, writer: _Writer
    ) -> None:
        for training_step in (1, 2, 3):
            episodes = make_training_step(training_step, num_groups=4)
            writer.write([*episodes, *make_decisions(episodes)])
        writer.keep_whole(after=2)
        writer.alive()
        some = num_removed(path)
        assert 0 < some < 32
        with held(path) as let_go:  # is given up for now, and nothing fails
            with pytest.raises(StoreError, match="locked"):
                writer.alive()
            let_go()
        writer.write(make_training_step(4))
        assert some < num_removed(path) < 32
        writer.close()
        assert num_removed(path) == 32

    def test_a_group_that_came_after_its_training_step_was_settled_goes_when_it_ends(
        self, path: Path, writer: _Writer
    ) -> None:
        episodes = make_training_step(1)
        late = [each for each in episodes if each.group_index == 0]
        early = [each for each in episodes if each.group_index != 0]
        writer.write([*early, *make_decisions(early)])
        writer.keep_whole(after=1)
        writer.alive()
        writer.alive()
        assert num_removed(path) == len(early)
        writer.write([*late, *make_decisions(late)])
        writer.close()
        assert num_removed(path) == len(episodes)

    def test_what_the_store_refuses_is_not_tried_again(
        self, writer: _Writer, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(StoreError, match="decision on a group that is not in the store"):
            writer.write(make_decisions(make_training_step(1)))

        assert caplog.records == []


@pytest.mark.slow  # Ray takes seconds to start
class TestRunRecorder:
    """The writer in a process of its own."""

    @pytest.fixture(scope="class", autouse=True)
    def _ray(self, cpu_run: None, pythons: Pythons) -> Generator[None]:
        with ray_here(python=pythons.engine):
            yield

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "store.db"

    @pytest.fixture
    def recorder(self, path: Path) -> Generator[RunRecorder]:
        with recorder_of(path) as recorder:
            yield recorder

    def answer(self, recorder: RunRecorder) -> WriterStatus | None:
        """What `alive` says once the writer has been heard."""
        said = recorder.alive()
        while recorder._asked is not None:
            said = recorder.alive()
        return said

    def test_a_sign_of_life_that_fails_is_said_once_and_tried_again(
        self, path: Path, recorder: RunRecorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        with refusing(path, "UPDATE ON runs"):
            assert [self.answer(recorder) for _ in range(3)] == [None] * 3
        assert len(caplog.records) == 1
        assert f"{path}: not now: the store refused" in caplog.messages[0]

        answer = self.answer(recorder)
        assert answer is not None
        assert recorder.processor_seconds == answer.processor_seconds > 0

    @pytest.fixture
    def alone(self, path: Path) -> RunRecorder:
        """A recorder that nobody closes: its writer is to be lost."""
        recorder = RunRecorder.start(str(path), name=path.as_posix(), run_id="run", attempt=0)
        recorder.write([run_started()])
        return recorder

    def test_the_end_of_a_run_is_stored_though_the_writers_process_is_gone(
        self, path: Path, alone: RunRecorder
    ) -> None:
        alone.put(make_training_step(1))
        alone.settle()
        ray.kill(alone._actor)

        alone.end(ended("finished"), store=str(path))

        assert end_of_run(path) == ("finished", "")

    def test_a_run_that_lost_records_with_its_writer_did_not_finish(
        self, path: Path, alone: RunRecorder
    ) -> None:
        with held(path):
            alone.put(make_training_step(1))
            ray.kill(alone._actor)
        with pytest.raises(WriterLost, match="is gone"):
            alone.end(ended("finished"), store=str(path))

        status, message = end_of_run(path)
        assert status == "failed"
        assert "the process that writes the store is gone" in message

    def test_a_run_that_was_cancelled_is_stored_so_whatever_was_lost(
        self, path: Path, alone: RunRecorder
    ) -> None:
        with held(path):
            alone.put(make_training_step(1))
            ray.kill(alone._actor)
        alone.end(ended("cancelled"), store=str(path))

        assert end_of_run(path) == ("cancelled", "")

    def test_a_writer_that_does_not_answer_holds_up_no_end_that_is_in_a_hurry(
        self, path: Path, alone: RunRecorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recorder_module, "HURRIED_SECONDS", 0.5)

        def process(_: object) -> int:
            return os.getpid()

        writer: int = ray.get(alone._actor.__ray_call__.remote(process))
        os.kill(writer, signal.SIGSTOP)
        began = time.monotonic()
        try:
            alone.put(make_training_step(1))
            alone.end(ended("cancelled"), store=str(path), hurry=True)
        finally:
            os.kill(writer, signal.SIGKILL)

        assert end_of_run(path) == ("cancelled", "")
        assert time.monotonic() - began < 60

    def test_what_was_put_is_on_its_way_until_it_is_settled(
        self, path: Path, recorder: RunRecorder
    ) -> None:
        first, second = make_training_step(1), make_training_step(2)
        with held(path) as let_go:
            recorder.put(first)
            recorder.put(second)
            assert num_episodes(path) == 0
            let_go()
            recorder.settle()

        assert num_episodes(path) == len(first) + len(second)

    def test_a_batch_that_was_put_and_fails_is_named_when_it_is_settled(
        self, path: Path, recorder: RunRecorder
    ) -> None:
        first, second = make_training_step(1), make_training_step(2)
        recorder.put(first)
        recorder.put([*make_decisions(second)])
        with pytest.raises(StoreError, match="decision on a group that is not in the store"):
            recorder.settle()

        assert num_episodes(path) == len(first)
        recorder.settle()

    def test_a_batch_is_waited_for_while_the_event_loop_goes_on(
        self, path: Path, recorder: RunRecorder
    ) -> None:
        async def commit() -> int:
            with held(path) as let_go:
                committing = asyncio.create_task(recorder.commit(make_training_step(1)))
                done, _ = await asyncio.wait({committing}, timeout=2.0)
                assert not done
                let_go()
                await asyncio.wait_for(committing, timeout=60)
            return num_episodes(path)

        assert asyncio.run(commit()) == 8

    def test_a_batch_that_fails_is_its_own_callers_error(
        self, path: Path, recorder: RunRecorder
    ) -> None:
        async def commit() -> list[BaseException | None]:
            first, second = make_training_step(1), make_training_step(2)
            batches: list[list[Record]] = [[*make_decisions(first)], [*second]]
            return await asyncio.gather(
                *(recorder.commit(batch) for batch in batches), return_exceptions=True
            )

        failure, none = asyncio.run(commit())
        assert isinstance(failure, StoreError)
        assert "decision on a group that is not in the store" in str(failure)
        assert none is None
        assert num_episodes(path) == 8
        recorder.put([])
        recorder.flush()

    def test_no_more_batches_are_sent_than_may_be_on_their_way(
        self, path: Path, recorder: RunRecorder
    ) -> None:
        bounded = RunRecorder.find(path.as_posix(), max_pending=3)
        batches = [[record] for record in make_training_step(1)]

        async def commit() -> None:
            with held(path) as let_go:
                committing = [asyncio.create_task(bounded.commit(batch)) for batch in batches]
                async with asyncio.timeout(60):
                    while not bounded._places.locked():  # noqa: ASYNC110  it has no event
                        await asyncio.sleep(0.02)
                let_go()
                await asyncio.wait_for(asyncio.gather(*committing), timeout=60)

        asyncio.run(commit())
        assert num_episodes(path) == len(batches)
