"""A real environment server in a process of its own, for tests, and a proxy that loses replies."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from other_processes import children_of, command_of

TESTS = Path(__file__).parent
TOKEN = "a-token-of-the-tests-alone"
SLOW_START = {"RAY_raylet_start_wait_time_s": "150", "RAY_gcs_server_port_wait_time_s": "150"}
"""Ray's own limits of a start, 30 s and less, are too short for a machine that is busy. No setting
has the 15 s that it gives its dashboard's agent (ray-project/ray#65983): it starts without one."""

PROGRAM = """
import json, logging, sys
import uvloop
from longhaul_envs.server.fleet import FleetLimits
from longhaul_envs.server.serve import serve
from longhaul_envs.server.served import EnvironmentToServe
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import TableLimits
from longhaul_envs.server.workers import ProcessBackend

logging.basicConfig(level=logging.INFO)
described = json.loads(sys.argv[1])
backend = ProcessBackend
if described["on_ray"]:
    import ray
    from longhaul_envs.server.ray_workers import RayBackend as backend
    from longhaul_trainer.verl.cpu.lean_ray import lean_ray

    with lean_ray():
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
uvloop.run(
    serve(
        [
            EnvironmentToServe(
                id=one["id"],
                options=one.get("options", {}),
                import_modules=tuple(one.get("import_modules", ["served_world"])),
                limits=FleetLimits(**one.get("limits", {})),
                sessions_per_worker=one.get("sessions_per_worker"),
            )
            for one in described["environments"]
        ],
        ServerSettings(
            limits=TableLimits(**described.get("table", {})), **described.get("settings", {})
        ),
        backend=backend,
        on_listening=lambda address: print(address, flush=True),
        on_ready=lambda: print("ready", flush=True),
    )
)
"""


FORK_SERVER = "longhaul_core.gym.supervised"
"""In the command of a fork server, whose children are workers with the same command."""


@dataclass(kw_only=True)
class RunningServer:
    """A server that was started."""

    process: "subprocess.Popen[str]"
    address: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def below(self) -> list[psutil.Process]:
        """Every process that it started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        """Its worker processes: what its fork servers have forked."""
        return [
            worker
            for process in self.below()
            if FORK_SERVER in command_of(process)
            for worker in children_of(process)
        ]

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready", self.log.read_text()

    def stop(self) -> int:
        """Stop it as an operator does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running_server(
    *environments: Mapping[str, Any],
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    table: Mapping[str, Any] | None = None,
    waits: bool = True,
    on_ray: bool = False,
) -> Generator[RunningServer]:
    """A server of these environments, until the block ends.

    Args:
        environments: As `EnvironmentToServe` has them.
        folder: For its log.
        settings: Of `ServerSettings`; without a port, any that is free.
        table: Of `TableLimits`.
        waits: Whether to wait until sessions can be opened.
        on_ray: Whether its workers are on a Ray cluster, of its own, instead of its own processes.
    """
    described = {
        "environments": environments,
        "settings": {"port": 0, "drain_seconds": 0.5, **(settings or {})},
        "table": table or {},
        "on_ray": on_ray,
    }
    log = folder / f"server-{random.SystemRandom().randrange(10**9)}.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(described)],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, **SLOW_START, "PYTHONPATH": str(TESTS)},
        )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        server = RunningServer(process=process, address=address, log=log)
        if waits:
            server.wait_until_ready()
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()
        process.stdout.close()


def client_of(server: RunningServer, *, token: str = "", name: str = "") -> httpx.Client:
    """For requests by hand."""
    headers = {"Longhaul-Client": name} if name else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    # Certificates, of which there are none here, would be read for as long as a server starts.
    return httpx.Client(base_url=server.address, headers=headers, timeout=60, verify=False)


def num_open_sessions(server: RunningServer) -> int:
    """Sessions that are open, by the server's metrics."""
    lines = httpx.get(f"{server.address}/metrics", timeout=60).text.splitlines()
    values = [line.split()[1] for line in lines if line.startswith("longhaul_sessions_open{")]
    assert values
    return int(sum(map(float, values)))


@dataclass
class LossyProxy:
    """Passes requests on, and loses some of the answers: the server did what it was asked."""

    port: int
    upstream: Callable[[], int]
    """Port of the server now."""
    loses: Callable[[], bool]
    num_lost: int = 0
    connections: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ours, theirs = await asyncio.open_connection("127.0.0.1", self.upstream())
        except OSError:
            writer.close()
            return
        try:
            await asyncio.wait(
                {
                    asyncio.ensure_future(self.up(reader, theirs)),
                    asyncio.ensure_future(self.down(ours, writer)),
                },
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for one in (theirs, writer):
                one.close()

    async def up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()

    async def down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                if self.loses():
                    self.num_lost += 1
                    return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def lossy_proxy(
    upstream: Callable[[], int], *, loses: Callable[[], bool]
) -> AsyncGenerator[LossyProxy]:
    """A proxy before a server, until the block ends."""
    proxy = LossyProxy(0, upstream, loses)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await asyncio.sleep(0)
