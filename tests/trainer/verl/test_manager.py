"""Tests for `longhaul_trainer.verl.manager`: agent loops in processes of their own."""

import asyncio
import os
import signal
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig

from longhaul_core.errors import LonghaulError
from longhaul_core.types import FailureCause
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.training.columns import objects
from longhaul_trainer.training.stopping import EpisodesInFlight
from store_samples import make_failure
from trainer.verl.local_ray import ray_here
from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

AT_ONCE = (4, 4)


def manager_of(worker: type[Any]) -> Any:  # noqa: ANN401  verl is imported by the tests alone
    """Two agent loops, each an actor of this class."""
    from longhaul_trainer.verl import manager

    config = {"actor_rollout_ref": {"rollout": {"agent": {"num_workers": 2}}, "model": {}}}
    create: Any = manager.StoppableAgentLoopManager.create
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "StoppableWorker", worker)
        return create(config=DictConfig(config), llm_client=None, at_once=AT_ONCE)


def worker_without_model(marks: Path | None = None) -> type[Any]:
    """An agent loop whose episodes last until they are stopped; it has no model to load.

    What plays there leaves a file in `marks` when it is closed, named by its process.
    """
    from longhaul_trainer.verl import agent_loop, manager

    stopped = replace(make_failure(), cause=FailureCause.STOPPED_EARLY)

    def leave_mark() -> None:  # in here, since an actor cannot import this file
        if marks is not None:
            (marks / str(os.getpid())).touch()

    class WithoutModel(manager.StoppableWorker):
        def __init__(self, *others: object) -> None:
            self.background_tasks: set[asyncio.Task[None]] = set()
            self._given: list[tuple[str, int]] = []
            self._in_flight = EpisodesInFlight()
            services: Any = agent_loop._services
            services["run"] = SimpleNamespace(in_flight=self._in_flight, close=self._close)
            self.closed = asyncio.Event()
            self.closes = asyncio.Event()
            self.closes.set()

        async def generate_sequences(self, batch: Any) -> None:  # noqa: ANN401
            step = int(batch["global_steps"])
            for group in batch["uid"]:
                self._given.append((group, step))
                task = asyncio.create_task(self._play(group))
                self.background_tasks.add(task)
                task.add_done_callback(self.background_tasks.discard)
            await asyncio.sleep(0)

        async def _play(self, group: str) -> None:
            with self._in_flight.playing(group) as stop:
                await stop.wait()
                self._in_flight.note(group, stopped)

        async def _close(self) -> None:
            await self.closes.wait()
            self.closed.set()
            leave_mark()

        async def given(self) -> tuple[AgentLoop, int, list[tuple[str, int]]]:
            return agent_loop.this_process(), os.getpid(), self._given

    return WithoutModel


@pytest.fixture(scope="module")
def loops(cpu_run: None, pythons: Pythons) -> Generator[Any]:
    """Two for all of these tests: each takes seconds to import verl.

    They start where every processor is spoken for, as verl's pools may have it.
    """
    import ray
    from ray.util import placement_group

    with ray_here(python=pythons.engine):
        pool = placement_group([{"CPU": ray.cluster_resources()["CPU"]}])
        assert pool.wait(60)
        yield manager_of(worker_without_model())


def given_to(loops: Any) -> list[tuple[AgentLoop, int, list[tuple[str, int]]]]:  # noqa: ANN401
    """Which loop each process is, its process id, and the groups that it was given."""
    import ray

    return ray.get([worker.given.remote() for worker in loops.agent_loop_workers])


def prompts(groups: Sequence[str]) -> Any:  # noqa: ANN401
    """Groups as the trainer dispatches them."""
    from verl.utils import tensordict_utils as tu

    names: Any = objects(list(groups))
    batch = tu.get_tensordict({"uid": names})
    tu.assign_non_tensor_data(batch, "global_steps", 3)
    return batch


def test_each_agent_loop_is_a_process_with_a_share_of_its_own_and_waits_for_no_processor(
    loops: Any,  # noqa: ANN401
) -> None:
    import ray

    (first, first_pid, _), (second, second_pid, _) = given_to(loops)

    assert [first, second] == [AgentLoop(index=0, of=2), AgentLoop(index=1, of=2)]
    assert len({os.getpid(), first_pid, second_pid}) == 3
    assert ray.available_resources().get("CPU", 0) == 0


def test_groups_are_spread_and_few_go_where_fewest_are_in_flight(
    loops: Any,  # noqa: ANN401
) -> None:
    loops.generate_sequences(prompts(["a", "b", "c"]))
    loops.generate_sequences(prompts(["d"]))
    loops.generate_sequences(prompts(["e"]))

    (_, _, first), (_, _, second) = given_to(loops)
    assert first == [("a", 3), ("c", 3), ("e", 3)]
    assert second == [("b", 3), ("d", 3)]

    loops.stop_groups(["a", "c", "e"])
    loops.generate_sequences(prompts(["f", "g"]))

    (_, _, first), (_, _, second) = given_to(loops)
    assert [group for group, _ in first[3:]] == ["f", "g"]
    assert len(second) == 2
    loops.stop_groups(list("bdfg"))


def test_groups_are_stopped_in_whichever_loop_plays_them(loops: Any) -> None:  # noqa: ANN401
    loops.generate_sequences(prompts(["x", "y", "z"]))

    loops.stop_groups(["x", "y"])
    stopped = loops.stop_groups(["x", "y"])

    assert {group: found.num_episodes for group, found in stopped.items()} == {"x": 1, "y": 1}
    assert all(found.num_tokens > 0 for found in stopped.values())


@pytest.mark.usefixtures("loops")
def test_an_agent_loop_that_cannot_start_is_an_error_with_the_reason() -> None:
    class Broken(worker_without_model()):
        def __init__(self, *others: object) -> None:
            raise ValueError("no tokenizer here")

    with pytest.raises(LonghaulError, match=r"of 2 could not be started: .*no tokenizer here"):
        manager_of(Broken)


def test_the_death_of_an_agent_loop_is_an_error_that_names_it(loops: Any) -> None:  # noqa: ANN401
    loops.require_alive()
    _, (_, pid, _) = given_to(loops)

    os.kill(pid, signal.SIGKILL)

    named = rf"agent loop 1 of 2, process {pid} on .* is gone, with the episodes .* has died"
    with pytest.raises(LonghaulError, match=named):
        loops.require_alive(within_seconds=30)
    with pytest.raises(LonghaulError, match=named):
        loops.require_alive()
    with pytest.raises(LonghaulError, match=named):
        loops.generate_sequences(prompts(["a"]))


def test_a_worker_ends_its_episodes_and_then_what_plays_them() -> None:
    async def ended() -> None:
        worker = worker_without_model()()
        await worker.generate_sequences(prompts(["a", "b"]))
        playing = list(worker.background_tasks)

        await worker.close(within_seconds=30)

        assert [task.cancelled() for task in playing] == [True, True]
        assert worker.closed.is_set()
        await worker.close(within_seconds=30)  # as a run does that ends and is then torn down

    asyncio.run(ended())


def test_what_does_not_end_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    async def hung() -> None:
        worker = worker_without_model()()
        worker.closes.clear()

        await worker.close(within_seconds=0.1)

        assert not worker.closed.is_set()

    asyncio.run(hung())

    assert "did not end within 0.1 s" in caplog.text


@pytest.mark.usefixtures("loops")
def test_stopped_loops_end_what_plays_in_their_processes(tmp_path: Path) -> None:
    import ray

    others = manager_of(worker_without_model(tmp_path))
    pids = [pid for _, pid, _ in given_to(others)]

    others.stop()

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, pids))
    assert len(ray.wait(others._lives, num_returns=2, timeout=60)[0]) == 2
    others.stop()
