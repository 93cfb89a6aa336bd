"""Workers on the nodes of a Ray cluster: placed on all of them, lost with a cause, never left."""

import asyncio
import gc
import os
import signal
import warnings
from collections import Counter
from collections.abc import Generator
from typing import Any

import msgspec
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from local_workers import until
from longhaul_core.errors import EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Split
from longhaul_envs.server.hosting import Call, Done, Verb, decode_answer, encode_calls
from longhaul_envs.server.ray_workers import RayBackend
from longhaul_envs.server.workers import Worker
from longhaul_envs.textcraft.tasks import source
from other_processes import children_of, command_of

SPEC = GymEnvironmentSpec(
    environment_id="longhaul/TextCraft-v0", import_modules=("longhaul_envs.textcraft",)
)
TASK = source({}).tasks(Split.TEST)[0]
RESET = Call(Verb.RESET, 0, TASK.task_id, TASK.seed)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_nodes() -> Generator[None]:
    """A cluster of two nodes, which are processes of this machine, of one and of two processors."""
    cluster: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=2)
    untyped: Any = ray
    untyped.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        untyped.shutdown()
        cluster.shutdown()
        gc.collect()  # Ray forgets processes that are about to end


async def answers(worker: Worker, *calls: Call) -> tuple[Done, ...]:
    return decode_answer(await worker.ask(encode_calls(list(calls))))


async def started(backend: RayBackend) -> tuple[Worker, int]:
    """A new worker, and its process."""
    before = {process.pid for process in workers_here()}
    worker = await backend.start_worker()
    (pid,) = {process.pid for process in workers_here()} - before
    return worker, pid


def workers_here() -> list[psutil.Process]:
    """Every worker process of an actor of this test's cluster, whose nodes are its children."""
    keepers = [
        process
        for process in psutil.Process().children(recursive=True)
        if "ray::_Keeper" in command_of(process)
    ]
    servers = [server for keeper in keepers for server in children_of(keeper)]
    return [worker for server in servers for worker in children_of(server)]


def require_no_worker_left() -> None:
    """An actor that was killed is gone some moments later, and its workers with it."""
    asyncio.run(until(lambda: not workers_here()))


def test_workers_are_spread_over_nodes_by_their_processors(two_nodes: None) -> None:
    async def spread() -> Counter[str]:
        backend = RayBackend(SPEC.to_json())
        try:
            workers = [await backend.start_worker() for _ in range(6)]
            done = [await answers(worker, RESET) for worker in workers]
            texts = {msgspec.json.decode(one.content, type=Observation).text for (one,) in done}
            assert len(texts) == 1
            assert TASK.goal
            assert TASK.goal in texts.pop()
            nodes: Any = vars(backend)["_nodes"].values()
            return Counter({node.id: len(node.workers) for node in nodes})
        finally:
            await backend.close()

    assert sorted(asyncio.run(spread()).values()) == [2, 4]
    require_no_worker_left()


def test_a_worker_that_is_killed_ends_with_its_signal_and_its_neighbour_goes_on(
    two_nodes: None,
) -> None:
    async def one_killed() -> str:
        backend = RayBackend(SPEC.to_json())
        try:
            (killed, pid), (other, _) = [await started(backend) for _ in range(2)]
            await answers(killed, RESET)
            os.kill(pid, signal.SIGKILL)
            words = await killed.ended
            with pytest.raises(EnvironmentFailure):
                await answers(killed, RESET)
            (done,) = await answers(other, RESET)
            assert not done.failed
            return words
        finally:
            await backend.close()

    assert "SIGKILL" in asyncio.run(one_killed())
    require_no_worker_left()


def test_a_worker_that_hangs_is_measured_and_killed_with_the_cause(two_nodes: None) -> None:
    async def stopped() -> str:
        backend = RayBackend(SPEC.to_json())
        try:
            worker, pid = await started(backend)
            os.kill(pid, signal.SIGSTOP)
            asked = asyncio.ensure_future(answers(worker, RESET))
            assert await worker.resident_bytes() > 2**20
            worker.kill("was killed by the test")
            with pytest.raises(EnvironmentFailure):
                await asked
            return await worker.ended
        finally:
            await backend.close()

    assert "was killed by the test" in asyncio.run(stopped())
    require_no_worker_left()


def test_the_workers_of_a_node_end_with_its_actor_and_new_ones_are_started(
    two_nodes: None,
) -> None:
    async def lost() -> str:
        backend = RayBackend(SPEC.to_json())
        try:
            workers = [await backend.start_worker() for _ in range(2)]
            keepers = {process.parent().parent().pid for process in workers_here()}  # pyright: ignore[reportOptionalMemberAccess]
            for keeper in keepers:
                os.kill(keeper, signal.SIGKILL)
            words = await asyncio.gather(*(worker.ended for worker in workers))
            again = await backend.start_worker()
            (done,) = await answers(again, RESET)
            assert not done.failed
            return words[0]
        finally:
            await backend.close()

    assert "was lost" in asyncio.run(lost())
    require_no_worker_left()


def test_an_environment_that_cannot_be_imported_is_reported(two_nodes: None) -> None:
    async def start() -> None:
        backend = RayBackend(GymEnvironmentSpec(environment_id="no/Such-v0").to_json())
        try:
            await backend.start_worker()
        finally:
            await backend.close()

    with pytest.raises(EnvironmentFailure, match="fork server ended"):
        asyncio.run(start())
