"""Real servers for tests: an ASGI application behind uvicorn, in a thread or in a process."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from longhaul_core.environment import EnvironmentSource, StepResult
from longhaul_core.types import Observation, Task


@contextmanager
def running(
    app: ASGIApp, *, websockets: Literal["none", "websockets-sansio"] = "none"
) -> Generator[str]:
    """The address of a server of `app`, which ends with the block."""
    config = uvicorn.Config(
        cast("Any", app),  # uvicorn has types of its own
        log_config=None,
        access_log=False,
        ws=websockets,
        timeout_graceful_shutdown=1,
    )
    listening = socket.create_server(("127.0.0.1", 0))  # clients may connect from here on
    with running_as(uvicorn.Server(config), listening) as address:
        yield address


@contextmanager
def running_as(server: uvicorn.Server, listening: socket.socket) -> Generator[str]:
    """The address of a server, which ends with the block."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        listening.close()
        assert not thread.is_alive()


def serve(app: ASGIApp) -> None:
    """Serve `app` in this process until it is killed; its address is the first line written."""
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    os.dup2(2, 1)  # nobody reads on: what else it writes would fill the pipe, and block it
    config = uvicorn.Config(
        cast("Any", app), log_level="error", access_log=False, timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listening])


class Program(NamedTuple):
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def running_program(path: Path, *arguments: str) -> Generator[Program]:
    """The program `path`, which calls `serve`; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=path.parent,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http"), f"{path.name} ended with exit code {process.wait()}"
        yield Program(url, process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Cable:
    """A way to a server that can be cut: connections of before break, and new ones are made."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there, self._path = (parts.hostname or "", parts.port or 0), parts.path
        self._ends: list[asyncio.StreamWriter] = []
        self.url = ""
        self.num_connections = 0
        self._awaited = b""
        self._seen = asyncio.Event()

    def cut(self) -> None:
        """Break every connection, without a word."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def awaiting(self, part: bytes) -> asyncio.Event:
        """Set when an answer of the server with `part` has come through."""
        self._awaited, self._seen = part, asyncio.Event()
        return self._seen

    @asynccontextmanager
    async def laid(self) -> AsyncGenerator["Cable"]:
        """The cable, whose `url` leads to the server, until the block ends."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._path}"
        try:
            yield self
        finally:
            self.cut()
            server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        far_reader, far_writer = await asyncio.open_connection(*self._there)
        self._ends += [writer, far_writer]
        await asyncio.gather(
            self._pump(reader, far_writer), self._pump(far_reader, writer, back=True)
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                if back and self._awaited and self._awaited in data:
                    self._seen.set()
            writer.close()


async def played(
    environments: EnvironmentSource, task: Task, actions: Sequence[str]
) -> tuple[Observation, list[StepResult]]:
    """The first observation of an episode, and the result of each action."""
    environment = environments.make(task)
    try:
        await environment.open()
        first = await environment.reset(task)
        return first, [await environment.step(action) for action in actions]
    finally:
        await environment.close()
