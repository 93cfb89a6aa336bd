"""Workers on the nodes of a Ray cluster: one actor a node, which keeps worker processes there.

On its node the actor is a `ProcessBackend`, so a worker is killed with all that it started, and
measured, as on a lone machine; if the actor or its node is lost, so are its workers. The actors
reserve no processors: reserved ones would keep a training run's own workers from being placed.

What is asked of a worker takes a connection of its own, since a call of an actor costs more than a
hundred steps: a Unix socket on the server's own node, TCP to every other. It begins with the
worker's key; the actor then hands the connection to the worker's process and has no more part in
it.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from longhaul_core.errors import EnvironmentFailure, MachineError
from longhaul_core.gym.supervised import Kind, WorkerProcess, framed
from longhaul_envs.server.workers import ProcessBackend, ProcessWorker, Worker

__all__ = ["RayBackend", "join_ray"]

logger = logging.getLogger(__name__)

_START_SECONDS = 180.0
"""For an actor and the imports of the environment."""
_ANSWER_SECONDS = 10.0
"""For what an actor knows at once. One that is silent for so long is killed with its workers."""
_MOST_CALLS = 10_000
"""Of an actor at once; a worker has at most three."""
_CUT_SECONDS = 0.5
"""How long a worker whose connection is cut may take to be reported as ended."""
_KEY_BYTES = 32
_MOST_VISITORS = 256
"""Connections of a node that have not sent a worker's key, at once; further ones are closed."""
_ACCEPT_PAUSE_SECONDS = 0.1


def join_ray(address: str) -> None:
    """Connect this process to a cluster: `auto` for the one that this machine is part of.

    Raises:
        MachineError: If it cannot be joined.
    """
    untyped: Any = ray
    try:
        untyped.init(
            address=address,
            log_to_driver=True,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise MachineError(
            f"no Ray cluster at {address!r} can be joined ({reason}); start one by `ray start "
            "--head`, or name another; one that requires a token gets this machine's by "
            "RAY_AUTH_MODE=token"
        ) from error


class _Started(NamedTuple):
    """A worker that an actor has started."""

    number: int
    door: int | bytes
    """Where the actor listens: a port, or the abstract address of a Unix socket."""
    key: bytes
    """What the connection to this worker begins with."""


class _Keeper:
    """The actor: keeps the workers of its node. Nothing raises through Ray."""

    def __init__(self, spec_json: str, *, is_here: bool = False) -> None:
        self._backend = ProcessBackend(spec_json, apart=True)
        self._is_here = is_here
        """Whether it is on the node of the server."""
        self._workers: dict[int, ProcessWorker] = {}
        self._by_key: dict[bytes, ProcessWorker] = {}
        """Those that nobody has connected to."""
        self._num_started = 0
        self._door: socket.socket | None = None
        self._visits: set[asyncio.Task[None]] = set()
        """Whoever waits at the door, and who lets them in."""

    async def start(self) -> _Started | str:
        """A new worker, or why there is none."""
        try:
            if self._door is None:
                self._door = _unix_door() if self._is_here else _tcp_door()
                self._door.setblocking(False)
                self._begin(self._let_in(self._door))
            worker = await self._backend.start_worker()
        except (EnvironmentFailure, OSError) as failure:
            return str(failure)
        self._num_started += 1
        self._workers[self._num_started] = worker
        key = secrets.token_bytes(_KEY_BYTES)
        self._by_key[key] = worker
        worker.ended.add_done_callback(lambda _: self._by_key.pop(key, None))
        name = self._door.getsockname()
        return _Started(self._num_started, name if self._is_here else name[1], key)

    async def ended(self, number: int) -> str:
        """How a worker ended, as soon as it has."""
        words = await asyncio.shield(self._workers[number].ended)
        del self._workers[number]
        return words

    async def kill(self, number: int, cause: str) -> None:
        """End a worker at once."""
        if number in self._workers:
            self._workers[number].kill(cause)

    async def resident_bytes(self, number: int) -> int:
        """Resident memory of a worker's processes."""
        return await self._workers[number].resident_bytes() if number in self._workers else 0

    async def close(self) -> None:
        """End every worker."""
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        if self._door is not None:
            self._door.close()
        await self._backend.close()

    def _begin(self, visit: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(visit)
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _let_in(self, door: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(door)
            except OSError as error:  # the visitor is gone, or this process has no descriptor left
                logger.warning("a connection to a worker could not be accepted: %s", error)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if len(self._visits) > _MOST_VISITORS:  # this one is among them
                logger.warning("a connection was closed: %d others wait", _MOST_VISITORS)
                connection.close()
                continue
            self._begin(self._hand_over(connection))

    async def _hand_over(self, connection: socket.socket) -> None:
        """Give a connection to the worker whose key it begins with."""
        loop = asyncio.get_running_loop()
        with connection, suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(_ANSWER_SECONDS):
                key = b""
                while len(key) < _KEY_BYTES:
                    received = await loop.sock_recv(connection, _KEY_BYTES - len(key))
                    if not received:
                        return
                    key += received
                worker = self._by_key.pop(key, None)
                if worker is None:
                    return
                if not self._is_here:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_sendall(connection, framed(Kind.ANSWER))
                worker.hand_over(connection)


def _tcp_door() -> socket.socket:
    return socket.create_server((cast("Any", ray).util.get_node_ip_address(), 0))


def _unix_door() -> socket.socket:
    """One whose address the kernel chooses; it has no file, and is gone with its socket."""
    door = socket.socket(socket.AF_UNIX)
    door.bind("")
    door.listen()
    return door


@dataclass(eq=False, slots=True)
class _Node:
    """A node of the cluster and its actor."""

    id: str
    address: str
    num_processors: float
    actor: Any
    workers: set["_RayWorker"] = field(default_factory=set["_RayWorker"])
    num_starting: int = 0
    is_lost: bool = False
    """Whether the actor is gone, or was killed."""

    @property
    def load(self) -> float:
        """Workers a processor, if it had one more."""
        return (len(self.workers) + self.num_starting + 1) / max(1.0, self.num_processors)

    async def reply(self, call: Awaitable[object], *, within: float | None = None) -> Any:  # noqa: ANN401  Ray's
        """What the actor returned.

        Raises:
            EnvironmentFailure: If it is gone, cannot be reached, or is silent for longer than
                `within` seconds; it is killed then, so that it cannot keep workers that nobody
                knows.
        """
        answer = asyncio.ensure_future(call)
        answer.add_done_callback(_seen)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), within)
        except TimeoutError:
            self.kill()
            raise EnvironmentFailure(
                f"the node {self.address} did not answer within {within:g} s"
            ) from None
        except RayError as error:
            self.kill()
            reason = str(error).strip().partition("\n")[0]
            raise EnvironmentFailure(f"the node {self.address} was lost: {reason}") from error

    def kill(self) -> None:
        """End the actor and its workers at once."""
        if not self.is_lost:
            self.is_lost = True
            ray.kill(self.actor)  # pyright: ignore[reportUnknownMemberType]  Ray's handle


def _seen(answer: "asyncio.Future[object]") -> None:
    """Who gave up waiting is owed no warning."""
    if not answer.cancelled():
        answer.exception()


class _RayWorker:
    """See `Worker`."""

    def __init__(self, node: _Node, number: int, line: WorkerProcess) -> None:
        self._node = node
        self._number = number
        self._line = line
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        line.ended.add_done_callback(self._on_cut)
        self._ending = self._loop.create_task(self._end())
        node.workers.add(self)

    def ask(self, message: bytes) -> "asyncio.Future[bytes]":
        return self._line.begin(message)

    def kill(self, cause: str) -> None:
        self._node.actor.kill.remote(self._number, cause)
        self._loop.call_later(_ANSWER_SECONDS, self._give_up, cause)

    async def resident_bytes(self) -> int:
        call = self._node.actor.resident_bytes.remote(self._number)
        try:
            return await self._node.reply(call, within=_ANSWER_SECONDS)
        except EnvironmentFailure:
            return 0

    async def _end(self) -> None:
        try:
            words = await self._node.reply(self._node.actor.ended.remote(self._number))
        except EnvironmentFailure as failure:
            words = str(failure)
        self._settle(words)

    def _give_up(self, cause: str) -> None:
        """End the actor as well, if it has not reported by now that the worker ended."""
        if not self.ended.done():
            self._node.kill()
            self._settle(f"{cause} and its node {self._node.address} is silent")

    def _on_cut(self, cut: "asyncio.Future[str]") -> None:
        """The connection ends with the worker, too; the actor then says how that was."""
        del cut
        self._loop.call_later(_CUT_SECONDS, self._kill_unreachable)

    def _kill_unreachable(self) -> None:
        if not self.ended.done():
            self.kill("was ended, since the connection to its node was cut,")

    def _settle(self, words: str) -> None:
        self._node.workers.discard(self)
        if not self.ended.done():
            self.ended.set_result(words)
        self._line.kill()


class RayBackend:
    """See `Backend`. Ray must be connected; nodes that join later are used for new workers."""

    def __init__(self, spec_json: str) -> None:
        """Describe it; nothing is started yet.

        Args:
            spec_json: A `GymEnvironmentSpec` as text.
        """
        self._spec_json = spec_json
        self._nodes: dict[str, _Node] = {}
        self._choosing = asyncio.Lock()

    async def start_worker(self) -> Worker:
        """See `Backend.start_worker`. On the node with the fewest workers a processor."""
        async with self._choosing:
            node = await self._least_loaded()
            node.num_starting += 1
        try:  # a node that is slow to start one holds up no other
            started: _Started | str = await node.reply(
                node.actor.start.remote(), within=_START_SECONDS
            )
            if isinstance(started, str):
                raise EnvironmentFailure(started)
            line = await _connected(node, started)
        finally:
            node.num_starting -= 1
        return _RayWorker(node, started.number, line)

    async def close(self) -> None:
        """See `Backend.close`."""
        nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            workers = list(node.workers)
            try:
                await node.reply(node.actor.close.remote(), within=_ANSWER_SECONDS)
            except EnvironmentFailure as failure:
                logger.warning("%s, while its workers were ended", failure)
            node.kill()
            await asyncio.gather(*(worker.ended for worker in workers))

    async def _least_loaded(self) -> _Node:
        """A living node.

        Raises:
            EnvironmentFailure: There is none.
        """
        listed = cast("list[dict[str, Any]]", await asyncio.to_thread(ray.nodes))
        living = {node["NodeID"]: node for node in listed if node["Alive"]}
        here = str(cast("Any", ray).get_runtime_context().get_node_id())
        for gone in [key for key in self._nodes if key not in living or self._nodes[key].is_lost]:
            del self._nodes[gone]
        for node_id, node in living.items():
            if node_id not in self._nodes:
                self._nodes[node_id] = _Node(
                    id=node_id,
                    address=node["NodeManagerAddress"],
                    num_processors=node["Resources"].get("CPU", 0.0),
                    actor=_keeper_on(node_id, self._spec_json, is_here=node_id == here),
                )
        if not self._nodes:
            raise EnvironmentFailure("Ray's cluster has no living node")
        return min(self._nodes.values(), key=lambda node: node.load)


async def _connected(node: _Node, started: _Started) -> WorkerProcess:
    """A connection to a worker, which is ended if there is none."""
    line: WorkerProcess | None = None
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            transport, line = await _line_to(node, started.door)
            transport.write(started.key)
            await line.greeting()
    except (EnvironmentFailure, OSError) as error:  # TimeoutError is an OSError
        if line is not None:
            line.kill()
        node.actor.kill.remote(started.number, "was ended, since nobody reached it,")
        node.actor.ended.remote(started.number)  # after which the actor forgets it
        is_port = isinstance(started.door, int)
        where = f"port {started.door}" if is_port else "its Unix socket"
        raise EnvironmentFailure(
            f"the node {node.address} cannot be connected to at {where}: {error!r}; "
            "the server must run on a machine of the cluster's network"
        ) from error
    return line


async def _line_to(node: _Node, door: int | bytes) -> tuple[asyncio.WriteTransport, WorkerProcess]:
    loop = asyncio.get_running_loop()
    if isinstance(door, int):
        return await loop.create_connection(WorkerProcess, node.address, door)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, cast("Any", door))
        return await loop.create_unix_connection(WorkerProcess, sock=connection)
    except BaseException:
        connection.close()
        raise


def _keeper_on(node_id: str, spec_json: str, *, is_here: bool) -> Any:  # noqa: ANN401  Ray's handle has no type
    keeper: Any = ray.remote(_Keeper)
    return keeper.options(
        num_cpus=0,
        max_concurrency=_MOST_CALLS,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
    ).remote(spec_json, is_here=is_here)
