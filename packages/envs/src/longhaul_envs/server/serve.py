"""Serve environments until a signal: workers, table and HTTP, begun and ended in order.

SIGTERM or Ctrl-C drains: no session is opened any more, those that are open may be played to their
end for some seconds, then everything is ended. A second signal ends it at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import uvloop

from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.http_server import HttpServer
from longhaul_core.open_files import raise_open_files
from longhaul_core.serving import address_of, bound_socket
from longhaul_envs.server.app import create_app
from longhaul_envs.server.dialects.listeners import listeners_of, open_listeners
from longhaul_envs.server.metrics import Metrics
from longhaul_envs.server.quick_steps import StepProtocol
from longhaul_envs.server.served import EnvironmentToServe
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import SessionTable
from longhaul_envs.server.workers import Backend, ProcessBackend

__all__ = ["run_server", "serve"]


def run_server(
    environments: Sequence[EnvironmentToServe],
    settings: ServerSettings,
    *,
    backend: Callable[[str], Backend] = ProcessBackend,
    on_listening: Callable[[str], None],
    on_ready: Callable[[], None],
) -> None:
    """`serve` in an event loop of its own, the quick one, with as many descriptors as it may."""
    raise_open_files()  # a connection is a descriptor
    uvloop.run(
        serve(environments, settings, backend=backend, on_listening=on_listening, on_ready=on_ready)
    )


async def serve(
    environments: Sequence[EnvironmentToServe],
    settings: ServerSettings,
    *,
    backend: Callable[[str], Backend] = ProcessBackend,
    on_listening: Callable[[str], None] = lambda address: None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        environments: What to serve, at least one, each id once.
        settings: Where, and whom to answer.
        backend: Where workers run; makes a back end from a `GymEnvironmentSpec` as text.
        on_listening: Called with the server's address once it answers; it is starting then.
        on_ready: Called once sessions can be opened.

    Raises:
        ConfigError: If an environment cannot be served, or its first instance cannot be made.
        MachineError: If the address cannot be listened on.
    """
    ids = [one.id for one in environments]
    if not ids or len(set(ids)) < len(ids):
        raise ConfigError(f"serve at least one environment, and each id once, got {ids}")
    metrics = Metrics()
    served = [
        one.built(backend=backend, on_replaced=partial(metrics.replaced, one.id))
        for one in environments
    ]
    for one in served:
        metrics.watch(one.description.id, one.fleet)
    table = SessionTable(served, limits=settings.limits, observer=metrics)
    listeners = listeners_of(table, settings.dialects)
    with bound_socket(settings.host, settings.port) as listener:
        tasks = [asyncio.create_task(table.reap())]

        async def drain() -> None:
            await table.drain(seconds=settings.drain_seconds)
            server.should_exit = True

        server = HttpServer(
            create_app(table, settings, metrics),
            listener,
            header_seconds=settings.header_seconds,
            stop_seconds=5,
            protocol=StepProtocol,
            lifespan="off",
            proxy_headers=False,
            on_signal=lambda: tasks.append(asyncio.create_task(drain())),
        )
        on_listening(address_of(listener))
        listening = server.start()
        try:
            for one in served:
                one.fleet.start()
            starting = asyncio.create_task(_all_started(table))
            tasks.append(starting)
            async with open_listeners(listeners, header_seconds=settings.header_seconds):
                await asyncio.wait({listening, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    on_ready()
                await listening
        finally:
            server.should_exit = True
            await asyncio.wait({listening})
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(one.fleet.close() for one in served))


async def _all_started(table: SessionTable) -> None:
    for environment_id, one in table.served.items():
        try:
            await one.fleet.started()
        except EnvironmentFailure as failure:
            raise ConfigError(f"{environment_id} cannot be served: {failure}") from failure
