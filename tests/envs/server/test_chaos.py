"""Under faults, every episode is played as it would be undisturbed, or fails with its cause."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from environment_server import RunningServer, lossy_proxy, running_server
from local_workers import until
from longhaul_core.environment import Environment, EnvironmentSource, StepResult
from longhaul_core.errors import EpisodeError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.remote.source import RemoteSource
from longhaul_envs.sources import environment_source
from served_world import STEPS

NUM_EPISODES = 120
AT_ONCE = 24
CHAIN = "served/Chain-v0"

Transcript = tuple[Observation | StepResult, ...]
Outcome = Transcript | EpisodeError


def actions_of(task: Task) -> list[str]:
    return [f"{task.task_id} {n}" for n in range(STEPS)]


async def play(environment: Environment, task: Task, actions: Sequence[str]) -> Transcript:
    try:
        await environment.open()
        async with asyncio.timeout(300):
            shown: list[Observation | StepResult] = [await environment.reset(task)]
            for action in actions:
                shown.append(await environment.step(action))
        return tuple(shown)
    finally:
        await environment.close()


async def play_all(
    source: EnvironmentSource,
    tasks: Sequence[Task],
    *,
    actions_of: Callable[[Task], Sequence[str]] = actions_of,
) -> dict[str, Outcome]:
    """Every task, some at once; an episode that fails is not played again."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> Outcome:
        async with free:
            try:
                return await play(source.make(task), task, actions_of(task))
            except EpisodeError as failure:
                return failure

    outcomes = await asyncio.gather(*(one(task) for task in tasks))
    return {task.task_id: outcome for task, outcome in zip(tasks, outcomes, strict=True)}


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return list(local_source().tasks(Split.TRAIN)[:NUM_EPISODES])


@pytest.fixture(scope="module")
def undisturbed(tasks: list[Task]) -> dict[str, Outcome]:
    return asyncio.run(play_all(local_source(), tasks))


def local_source() -> EnvironmentSource:
    return environment_source(
        GymEnvironmentSpec(environment_id=CHAIN, import_modules=("served_world",))
    )


@dataclass
class Arena:
    """A server under load, and where its environment writes what acted."""

    server: RunningServer
    log: Path
    folder: Path
    threads: set[threading.Thread] = field(default_factory=lambda: set(threading.enumerate()))
    """Those of the test's process when the server was up, of other tests too."""

    def source(self, port: int | None = None) -> RemoteSource:
        address = f"http://127.0.0.1:{port}" if port else self.server.address
        return RemoteSource(address, CHAIN, {"log": str(self.log)})

    def acted(self, task: Task) -> list[str]:
        file = self.log / task.task_id.replace("/", "_")
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def described(log: Path, *, seconds: float = 30.0, **limits: object) -> dict[str, object]:
    deadlines = {"step_seconds": seconds, "reset_seconds": seconds}
    return {
        "id": CHAIN,
        "options": {"log": str(log)},
        "limits": {"num_workers": 3, **deadlines, **limits},
    }


@pytest.fixture
def on_ray() -> bool:
    """Whether workers are on a Ray cluster; a test of both back ends chooses."""
    return False


@pytest.fixture
def sent() -> signal.Signals | None:
    """What workers are sent; a test that disturbs them so chooses."""
    return None


@pytest.fixture
def arena(tmp_path: Path, on_ray: bool, sent: signal.Signals | None) -> Iterator[Arena]:
    log = tmp_path / "acted"
    log.mkdir()
    # Where nothing hangs, a deadline that is missed would be the machine's.
    seconds = 3.0 if sent is signal.SIGSTOP else 30.0
    environment = described(log, seconds=seconds, memory_bytes=400 * 2**20)
    with running_server(environment, folder=tmp_path, on_ray=on_ray) as server:
        yield Arena(server, log, tmp_path)


both_back_ends = pytest.mark.parametrize("on_ray", [False, True], ids=["processes", "ray"])


def require_nothing_acted_twice(arena: Arena, tasks: Sequence[Task]) -> None:
    for task in tasks:
        acted = arena.acted(task)
        expected = ["0 'reset'", *(f"{n + 1} {a!r}" for n, a in enumerate(actions_of(task)))]
        assert acted == expected[: len(acted)]


def require_completed_or_explained(
    outcomes: dict[str, Outcome], undisturbed: dict[str, Outcome], *, causes: set[str]
) -> int:
    """Number of episodes that completed."""
    for task_id, outcome in outcomes.items():
        if isinstance(outcome, EpisodeError):
            assert any(f"410, {cause}: " in str(outcome) for cause in causes), outcome
        else:
            assert outcome == undisturbed[task_id]
    return sum(not isinstance(outcome, EpisodeError) for outcome in outcomes.values())


def threads() -> set[threading.Thread]:
    """But for those of the event loop's executor, which end with the loop."""
    return {one for one in threading.enumerate() if not one.name.startswith("asyncio_")}


async def disturbed(
    arena: Arena, tasks: Sequence[Task], disturb: Callable[[], Awaitable[None]]
) -> dict[str, Outcome]:
    """The outcomes of episodes that are played while `disturb` goes on; and nothing is left."""
    threads_before, files_before = threads(), num_files()
    disturbing = asyncio.ensure_future(disturb())
    try:
        outcomes = await play_all(arena.source(), tasks)
    finally:
        disturbing.cancel()
        with suppress(asyncio.CancelledError):
            await disturbing
    await until(lambda: threads() <= threads_before and num_files() <= files_before)
    return outcomes


def num_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@both_back_ends
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_workers_that_are_killed_or_stopped_cost_their_own_sessions_alone(
    arena: Arena, tasks: list[Task], undisturbed: dict[str, Outcome], sent: signal.Signals
) -> None:
    chosen = random.Random(1)
    hit: list[int] = []

    async def disturb() -> None:
        while len(hit) < 4:
            await until(
                lambda: sum(bool(arena.acted(task)) for task in tasks) >= 25 * len(hit) + 5,
                seconds=120,
            )
            workers = [one for one in arena.server.workers() if one.pid not in hit]
            if workers:
                worker = chosen.choice(workers)
                hit.append(worker.pid)
                worker.send_signal(sent)
            await asyncio.sleep(0.05)

    outcomes = asyncio.run(disturbed(arena, tasks, disturb))

    cause = {signal.SIGKILL: "worker_lost", signal.SIGSTOP: "timeout"}[sent]
    completed = require_completed_or_explained(outcomes, undisturbed, causes={cause})
    assert NUM_EPISODES - 4 * 8 <= completed < NUM_EPISODES
    require_nothing_acted_twice(arena, tasks)
    require_nothing_left(arena)


@pytest.mark.slow
@both_back_ends
def test_a_worker_that_grows_is_replaced_and_its_sessions_say_why(
    arena: Arena, tasks: list[Task], undisturbed: dict[str, Outcome]
) -> None:
    greedy = tasks[10].task_id

    def actions(task: Task) -> list[str]:
        usual = actions_of(task)
        return [usual[0], "grow", *["slow"] * 10] if task.task_id == greedy else usual

    outcomes = asyncio.run(play_all(arena.source(), tasks, actions_of=actions))

    failure = outcomes[greedy]
    assert isinstance(failure, EpisodeError)
    assert "its processes held" in str(failure)
    completed = require_completed_or_explained(outcomes, undisturbed, causes={"memory"})
    assert completed >= NUM_EPISODES - 8
    require_nothing_left(arena)


@pytest.mark.slow
def test_replies_that_are_lost_after_the_step_change_nothing(
    arena: Arena, tasks: list[Task], undisturbed: dict[str, Outcome]
) -> None:
    drawn = random.Random(2)

    async def through_a_lossy_proxy() -> int:
        loses = lambda: drawn.random() < 0.1  # noqa: E731
        async with lossy_proxy(lambda: arena.server.port, loses=loses) as proxy:
            arena.source().tasks(Split.TRAIN)
            source = arena.source(proxy.port)
            source._description = arena.source().describe()  # pyright: ignore[reportPrivateUsage]
            assert await play_all(source, tasks) == undisturbed
            return proxy.num_lost

    assert asyncio.run(through_a_lossy_proxy()) > 20
    for task in tasks:
        assert len(arena.acted(task)) == STEPS + 1
    require_nothing_acted_twice(arena, tasks)
    require_nothing_left(arena)


@pytest.mark.slow
def test_a_server_that_is_restarted_costs_the_sessions_that_were_open(
    arena: Arena, tasks: list[Task], undisturbed: dict[str, Outcome]
) -> None:
    below = arena.server.below()

    async def played() -> dict[str, Outcome]:
        restarted = asyncio.ensure_future(asyncio.to_thread(restart))
        try:
            return await play_all(arena.source(), tasks)
        finally:
            await restarted

    with_second: list[RunningServer] = []
    stop = threading.Event()
    is_up = threading.Event()

    def restart() -> None:
        while sum(bool(arena.acted(task)) for task in tasks) < NUM_EPISODES // 3:
            stop.wait(0.01)
        arena.server.process.kill()
        arena.server.process.wait()

    def second() -> None:
        arena.server.process.wait()
        with running_server(
            described(arena.log), folder=arena.folder, settings={"port": arena.server.port}
        ) as server:
            with_second.append(server)
            is_up.set()
            stop.wait()

    thread = threading.Thread(target=second)
    thread.start()
    try:
        outcomes = asyncio.run(played())
        assert is_up.wait(120)
    finally:
        stop.set()
        thread.join()

    completed = require_completed_or_explained(outcomes, undisturbed, causes={"unknown"})
    assert NUM_EPISODES - AT_ONCE <= completed < NUM_EPISODES
    require_nothing_acted_twice(arena, tasks)
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not [one for one in alive if not is_zombie(one)]


def is_zombie(process: psutil.Process) -> bool:
    """It has ended; its parent was killed, and who took it over has not asked for its exit code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def require_nothing_left(arena: Arena) -> None:
    """Sessions and the loop's threads are gone, and processes once the server is stopped."""
    for thread in set(threading.enumerate()) - arena.threads:
        thread.join(timeout=60)
    assert set(threading.enumerate()) <= arena.threads
    below = arena.server.below()
    assert arena.server.stop() == 0
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive
