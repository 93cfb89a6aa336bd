"""The ports of the dialects: opened beside the server's own, and closed with it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from longhaul_core.errors import ConfigError
from longhaul_core.http_server import HttpServer
from longhaul_core.serving import bound_socket
from longhaul_envs.extras import required
from longhaul_envs.server.table import SessionTable

__all__ = ["DIALECTS", "Listener", "listeners_of", "open_listeners"]

DIALECTS: Mapping[str, tuple[str, str]] = {
    "agentgym": ("uvicorn", "server"),
    "openenv": ("openenv", "dialects"),
    "ors": ("openreward", "dialects"),
}
"""What is spoken besides the server's own protocol: the package that it takes, and the extra that
brings it."""


_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Listener:
    """A dialect on a port."""

    dialect: str
    port: int
    environment_ids: tuple[str, ...]
    """That are played there."""
    app: Any
    """ASGI."""


def listeners_of(table: SessionTable, ports: Mapping[str, int]) -> list[Listener]:
    """What is opened for a server's environments. Within the table's event loop.

    AgentGym and OpenEnv play one environment on a port, so each further one of the server takes the
    next port; ORS plays all on one.

    Args:
        table: The sessions.
        ports: The dialect to its first port.

    Raises:
        ConfigError: The package of a dialect is not installed, two would have one port, or a
            dialect of text would have to show pictures.
    """
    listeners: list[Listener] = []
    served = list(table.served.values())
    for dialect, first in ports.items():
        required(*DIALECTS[dialect])
        if dialect == "ors":
            from longhaul_envs.server.dialects.ors import create_ors_app

            ids = tuple(one.description.id for one in served)
            listeners.append(Listener(dialect, first, ids, create_ors_app(table, served)))
            continue
        if dialect == "openenv":
            from longhaul_envs.server.dialects.openenv import create_openenv_app as create
        else:
            from longhaul_envs.server.dialects.agentgym import create_agentgym_app as create
        listeners += [
            Listener(dialect, first + place, (one.description.id,), create(table, one))
            for place, one in enumerate(served)
        ]
    taken = Counter(listener.port for listener in listeners)
    for listener in listeners:
        environments = ", ".join(listener.environment_ids)
        if taken[listener.port] > 1 or listener.port > _LAST_PORT:
            raise ConfigError(
                f"{listener.dialect} would play {environments} on port {listener.port}, which "
                f"{'is taken by another' if taken[listener.port] > 1 else 'there is not'}; "
                "agentgym and openenv take "
                f"{len(served)} ports each, one for each environment, from that "
                "of --dialect on"
            )
    return listeners


@asynccontextmanager
async def open_listeners(
    listeners: list[Listener], *, header_seconds: float
) -> AsyncGenerator[None]:
    """Listen on every one's port, on loopback alone, while the block runs.

    Args:
        listeners: At most one for each port.
        header_seconds: See `ServerSettings`.
    """
    with contextlib.ExitStack() as sockets:
        bound = [
            sockets.enter_context(contextlib.closing(bound_socket("127.0.0.1", listener.port)))
            for listener in listeners
        ]
        servers = [
            HttpServer(listener.app, socket, header_seconds=header_seconds, stop_seconds=5)
            for listener, socket in zip(listeners, bound, strict=True)
        ]
        for server in servers:
            server.start()
        try:
            yield
        finally:
            await asyncio.gather(*(server.stop() for server in servers))
