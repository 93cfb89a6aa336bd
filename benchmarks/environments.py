"""Steps a second of TextCraft: in process, by our server, and by one of AgentGym's shape.

The server of AgentGym's shape is what its authors' servers are: FastAPI with plain `def` handlers,
a pydantic body for each request, and a dictionary of environments. It plays our TextCraft. (Its
own figure, with its own TextCraft, was 565 steps/s with one client and 1,976 with 32 on two cores.)
It is asked by the same client as ours, aiohttp on uvloop in one process, so that the servers make
the difference; and by AgentGym's own kind of client, `requests` without a session, a thread each.

Then 1,000 sessions are opened, played and closed at once in 16 workers, twice: what the second
round leaves behind is printed.

The same server with its workers on Ray is measured afterwards, on a cluster of this machine alone,
since Ray's own processes would take from the others.

Run on an idle machine: `python benchmarks/environments.py` (some four minutes)
"""

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import gymnasium
import psutil
import ray
import requests
import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel

from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Split, Task
from longhaul_envs.remote.client import ServerClient
from longhaul_envs.remote.environment import RemoteEnvironment
from longhaul_envs.remote.source import RemoteSource
from longhaul_envs.server.fleet import FleetLimits
from longhaul_envs.server.ray_workers import RayBackend
from longhaul_envs.server.serve import run_server
from longhaul_envs.server.served import EnvironmentToServe
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.workers import ProcessBackend
from longhaul_envs.sources import environment_source

TEXTCRAFT = "longhaul/TextCraft-v0"
SPEC = GymEnvironmentSpec(environment_id=TEXTCRAFT, import_modules=("longhaul_envs.registry",))
ACTIONS = ("inventory", "get 1 oak log", "craft 4 oak planks using 1 oak log", "inventory")
"""Played over and over; none of them ends an episode."""
NUM_CLIENTS = 32
SECONDS = 4.0
ROUNDS = 3
"""The median of them is printed, since one that is disturbed is slow."""
NUM_SESSIONS = 1000
NUM_WORKERS = 16


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=["ours", "ray", "agentgym"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--sessions", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=["speed", "sessions"], help="Only one of the two.")
    asked = parser.parse_args()
    if asked.serve in ("ours", "ray"):
        is_on_ray = asked.serve == "ray"
        serve_ours(asked.port, workers=asked.workers, sessions=asked.sessions, is_on_ray=is_on_ray)
    elif asked.serve == "agentgym":
        serve_agentgym(asked.port)
    else:
        if asked.part != "sessions":
            print_speed()
        if asked.part != "speed":
            uvloop.run(print_sessions())


# The servers


def serve_ours(port: int, *, workers: int, sessions: int | None, is_on_ray: bool) -> None:
    """Our server, as `trainer serve-env` starts it."""
    if is_on_ray:
        untyped: Any = ray
        untyped.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    run_server(
        [
            EnvironmentToServe(
                id=TEXTCRAFT,
                limits=FleetLimits(num_workers=workers),
                sessions_per_worker=sessions,
            )
        ],
        ServerSettings(port=port),
        backend=RayBackend if is_on_ray else ProcessBackend,
        on_listening=lambda address: None,
        on_ready=lambda: print("ready", flush=True),
    )


class CreateBody(BaseModel):
    """As AgentGym's clients send it."""

    commands: str | None = None
    goal: str | None = None


class ResetBody(BaseModel):
    """As AgentGym's clients send it."""

    id: int
    data_idx: int


class StepBody(BaseModel):
    """As AgentGym's clients send it."""

    id: int
    action: str


def serve_agentgym(port: int) -> None:
    """A server of AgentGym's shape."""
    app = FastAPI()
    environments: dict[int, gymnasium.Env[str, str]] = {}
    tasks = environment_source(SPEC).tasks(Split.TRAIN)

    def create(body: CreateBody) -> dict[str, Any]:
        del body
        environments[len(environments)] = SPEC.make()
        return {"id": len(environments) - 1}

    def reset(body: ResetBody) -> dict[str, Any]:
        task = tasks[body.data_idx]
        text, _ = environments[body.id].reset(seed=task.seed, options={"task_id": task.task_id})
        return {"observation": text, "reward": 0.0, "done": False}

    def step(body: StepBody) -> dict[str, Any]:
        text, reward, terminated, truncated, info = environments[body.id].step(body.action)
        return {
            "observation": text,
            "reward": float(reward),
            "done": terminated or truncated,
            "available_actions": info["admissible_actions"],
        }

    for route in (create, reset, step):
        app.post(f"/{route.__name__}")(route)
    print("ready", flush=True)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


@contextmanager
def running(kind: str, *arguments: str) -> Generator[tuple[str, int]]:
    """A server in a process of its own; its address and its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", kind, "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == b"ready"
        while True:  # the other one prints before it listens
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                continue
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        process.stdout.close()


# Speed

Stepper = Callable[[str], Awaitable[object]]
"""Makes a step with an action."""
Played = Coroutine[None, None, tuple[int, float]]
"""Steps in all, and steps a second."""
Ways = Mapping[str, tuple[int, Callable[[], Played]]]
"""The process id of a server, and one round through it, by name."""


class Speed(NamedTuple):
    """Of one way."""

    steps: float
    """A second."""
    client: float
    """Processor time of the client's process, in microseconds a step."""
    server: float
    """The same, of the server's processes together: it does not depend on what else is running."""


def print_speed() -> None:
    """Steps a second of each way."""
    alone = statistics.median(in_process() for _ in range(ROUNDS))
    print(f"{'in process':32} {alone:9,.0f} steps/s", flush=True)
    figures: dict[str, Speed] = {}
    tasks = environment_source(SPEC).tasks(Split.TRAIN)[:NUM_CLIENTS]
    with running("agentgym") as (theirs, their_pid), running("ours") as (address, pid):
        ways: Ways = {
            "AgentGym's shape, 1 client": (
                their_pid,
                lambda: through_agentgym(theirs, tasks[:1]),
            ),
            "AgentGym's client, 1 client": (
                their_pid,
                lambda: through_their_client(theirs, tasks[:1]),
            ),
            "AgentGym's shape, 32 clients": (their_pid, lambda: through_agentgym(theirs, tasks)),
            "AgentGym's client, 32 clients": (
                their_pid,
                lambda: through_their_client(theirs, tasks),
            ),
            **ways_of_ours("ours", address, pid, tasks),
        }
        figures |= medians(ways)
    with running("ray") as (address, pid):
        figures |= medians(ways_of_ours("ours on Ray", address, pid, tasks))
    for name, speed in figures.items():
        shape = f"AgentGym's shape, {'32 clients' if '32' in name else '1 client'}"
        ratio = speed.steps / figures[shape].steps
        print(
            f"{name:32} {speed.steps:9,.0f} steps/s {ratio:6.2f} times AgentGym's shape; "
            f"processor time a step: client {speed.client:4.0f} µs, server {speed.server:4.0f} µs",
            flush=True,
        )


def ways_of_ours(name: str, address: str, pid: int, tasks: Sequence[Task]) -> Ways:
    """One client and all of them, unbatched and batched."""
    return {
        f"{name}, {clients}{', batched' if batches else ''}": (
            pid,
            partial(through_ours, address, some, batches=batches),
        )
        for clients, some in (("1 client", tasks[:1]), (f"{len(tasks)} clients", tasks))
        for batches in (False, True)
    }


def medians(ways: Ways) -> dict[str, Speed]:
    """Round by round, so that what disturbs the machine disturbs all of them."""
    measured = [
        {name: measured_way(way, pid=pid) for name, (pid, way) in ways.items()}
        for _ in range(ROUNDS)
    ]
    figures: dict[str, Speed] = {}
    for name in ways:
        rounds = [one[name] for one in measured]
        figures[name] = Speed(*(statistics.median(column) for column in zip(*rounds, strict=True)))
    return figures


def measured_way(way: "Callable[[], Played]", *, pid: int) -> Speed:
    """One way, and what it takes of the processors."""
    before = processor_seconds(os.getpid()), processor_seconds(pid)
    steps, rate = uvloop.run(way())
    after = processor_seconds(os.getpid()), processor_seconds(pid)
    client, server = (1e6 * (end - begin) / steps for begin, end in zip(before, after, strict=True))
    return Speed(rate, client, server)


def processor_seconds(pid: int) -> float:
    """Of a process, and of those below it unless it is this one."""
    process = psutil.Process(pid)
    below = [] if pid == os.getpid() else process.children(recursive=True)
    return sum(one.cpu_times().user + one.cpu_times().system for one in (process, *below))


def in_process() -> float:
    """An environment without anything around it."""
    environment = SPEC.make()
    task = environment_source(SPEC).tasks(Split.TRAIN)[0]
    environment.reset(seed=task.seed, options={"task_id": task.task_id})
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS / 4:
        for action in ACTIONS:
            environment.step(action)
        steps += len(ACTIONS)
    environment.close()
    return steps / (time.perf_counter() - began)


async def through_ours(address: str, tasks: Sequence[Task], *, batches: bool) -> tuple[int, float]:
    """One session for each task, each with a client that steps as fast as it is answered."""
    client = ServerClient(address, token="", name="", batches=batches)

    async def the_client() -> ServerClient:
        return client

    sessions = [RemoteEnvironment(the_client, TEXTCRAFT, num_free=None) for _ in tasks]
    for session, task in zip(sessions, tasks, strict=True):
        await session.open()
        await session.reset(task)
    try:
        return await steps_a_second([session.step for session in sessions])
    finally:
        for session in sessions:
            await session.close()


async def through_agentgym(address: str, tasks: Sequence[Task]) -> tuple[int, float]:
    """The same, in AgentGym's dialect."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as http:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            async with http.post(f"{address}{path}", json=body) as answer:
                return await answer.json()

        def stepper(number: int) -> Stepper:
            return lambda action: post("/step", {"id": number, "action": action})

        steppers: list[Stepper] = []
        for place in range(len(tasks)):
            number = (await post("/create", {}))["id"]
            await post("/reset", {"id": number, "data_idx": place})
            steppers.append(stepper(number))
        return await steps_a_second(steppers)


async def through_their_client(address: str, tasks: Sequence[Task]) -> tuple[int, float]:
    """The same, by a client like AgentGym's: a connection a request, a thread a client."""

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        return requests.post(f"{address}{path}", json=body, timeout=60).json()

    def stepper(number: int, threads: ThreadPoolExecutor) -> Stepper:
        loop = asyncio.get_running_loop()
        return lambda action: loop.run_in_executor(
            threads, post, "/step", {"id": number, "action": action}
        )

    with ThreadPoolExecutor(len(tasks)) as threads:
        steppers: list[Stepper] = []
        for place in range(len(tasks)):
            number = post("/create", {})["id"]
            post("/reset", {"id": number, "data_idx": place})
            steppers.append(stepper(number, threads))
        return await steps_a_second(steppers)


async def steps_a_second(steppers: list[Stepper]) -> tuple[int, float]:
    """Steps of all of them together, after half a second to warm up."""
    counts = [0] * len(steppers)
    ends_at = time.perf_counter() + SECONDS + 0.5

    async def go_on(place: int) -> None:
        while time.perf_counter() < ends_at:
            for action in ACTIONS:
                await steppers[place](action)
                counts[place] += 1

    tasks = [asyncio.ensure_future(go_on(place)) for place in range(len(steppers))]
    await asyncio.sleep(0.5)
    began, before = time.perf_counter(), sum(counts)
    await asyncio.gather(*tasks)
    return sum(counts), (sum(counts) - before) / (time.perf_counter() - began)


# Sessions


async def print_sessions() -> None:
    """What 1,000 sessions at once take, and leave."""
    sessions = -(-NUM_SESSIONS // NUM_WORKERS)
    with running("ours", "--workers", str(NUM_WORKERS), "--sessions", str(sessions)) as (
        address,
        pid,
    ):
        source = RemoteSource(address, TEXTCRAFT, {})
        tasks = source.tasks(Split.TRAIN)
        await play_at_once(source, tasks)
        before = Held(pid)
        began = time.perf_counter()
        await play_at_once(source, tasks)
        seconds = time.perf_counter() - began
        after = Held(pid)
    print(f"{NUM_SESSIONS} sessions at once in {NUM_WORKERS} workers: {seconds:.1f} s")
    print(f"  before: {before}\n  after:  {after}")
    print(f"  memory {after.mib / before.mib - 1:+.1%}")


async def play_at_once(source: RemoteSource, tasks: Any) -> None:  # noqa: ANN401
    """Open all sessions, then play all of them, then close them."""
    environments = [source.make(tasks[n % len(tasks)]) for n in range(NUM_SESSIONS)]
    await asyncio.gather(*(one.open() for one in environments))

    async def play(place: int) -> None:
        await environments[place].reset(tasks[place % len(tasks)])
        for action in ACTIONS:
            await environments[place].step(action)

    await asyncio.gather(*(play(place) for place in range(NUM_SESSIONS)))
    await asyncio.gather(*(one.close() for one in environments))


class Held:
    """What a server and the processes below it hold."""

    def __init__(self, pid: int) -> None:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        self.mib = sum(one.memory_full_info().pss for one in processes) / 2**20
        self.num_processes = len(processes)
        self.num_threads = sum(one.num_threads() for one in processes)
        self.num_descriptors = sum(
            len(os.listdir(Path("/proc", str(one.pid), "fd"))) for one in processes
        )

    def __str__(self) -> str:
        """For the table."""
        return (
            f"{self.mib:.0f} MiB (PSS), {self.num_processes} processes, {self.num_threads} "
            f"threads, {self.num_descriptors} descriptors"
        )


if __name__ == "__main__":
    main()
