"""Weights from the learner to engines on other machines, over plain TCP.

verl's own ways need the same accelerator on both sides and a package for it; this one needs
neither, at the price of a copy through the memory of the host. Every worker of the engines
opens a socket and reports, by Ray, its address and the password that it asks for; the learner's
rank 0 sends all of them every tensor, in order, and an end mark. Each has a thread of the sender,
so that none waits for another, and all read the same copy. Numbers travel in the precision that
the engine computes in: it would round them to it anyway, and a learner's float32 is twice the
bytes of bfloat16.

verl imports this module by its path (`custom_backend_module`) in every process that sends or
receives.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import ray
import torch
import zmq
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.device import get_device_id

from longhaul_core.errors import LonghaulError
from longhaul_trainer.verl.locks import Password

BACKEND = "longhaul_tcp"
"""Name of this way in verl's settings."""

LONGEST_SILENCE_SECONDS = 300.0
"""Longest that one side waits for the other."""

MAX_IO_THREADS = 4
"""Threads of ZeroMQ that write to sockets; one fills about 2 GB/s."""

END = b""


@dataclass(frozen=True, slots=True)
class Inbox:
    """Where a worker of the engines, or of the learner, waits for weights."""

    address: str
    password: Password
    """Without it the socket takes nothing. Weights are too much to encrypt: see `Password`."""


class _Engine(NamedTuple):
    """A worker of the engines, as the sender knows it."""

    outbox: zmq.Socket[bytes]
    thread: ThreadPoolExecutor
    """Of one thread, which alone uses the outbox while weights are sent."""


class TcpCheckpointEngine(CheckpointEngine):
    """One end of the way: the learner's if it `is_master`, or another that sends or receives."""

    def __init__(self, bucket_size: int, is_master: bool = False, dtype: str | None = None) -> None:
        """Nothing is opened before `prepare`.

        Args:
            bucket_size: Bytes of weights that the sender holds for engines that have not taken them
                yet; beyond it, it waits for the slowest. A tensor is not divided.
            is_master: Whether this is the learner's rank 0.
            dtype: Precision that floating-point tensors travel in, such as `bfloat16`; None sends
                them as they are.
        """
        self._bucket_size = bucket_size
        self._is_master = is_master
        self._dtype: torch.dtype | None = None if dtype is None else getattr(torch, dtype)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._inbox: zmq.Socket[bytes] | None = None
        self._engines: list[_Engine] = []

    def prepare(self) -> dict[str, Any]:
        """Open an inbox and say where it is; the learner's workers leave theirs unread."""
        context = self._context = zmq.Context(io_threads=MAX_IO_THREADS if self._is_master else 1)
        inbox = self._inbox = context.socket(zmq.PULL)
        _limit(inbox)
        password = Password.drawn()
        password.lock(inbox)
        host = ray.util.get_node_ip_address() if ray.is_initialized() else "127.0.0.1"
        port = inbox.bind_to_random_port(f"tcp://{host}")
        return {"inbox": Inbox(f"tcp://{host}:{port}", password)}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Who sends to whom: the learner to every worker of the engines."""
        receivers = [one["inbox"] for one in metadata[actor_wg_world_size:]]
        return (
            {"inboxes": [receivers] * actor_wg_world_size},
            {"inboxes": [[] for _ in range(rollout_world_size)]},
        )

    def init_process_group(self, **kwargs: list[Inbox]) -> None:
        """Connect the learner's rank 0 to the `inboxes`."""
        for inbox in kwargs["inboxes"] if self._is_master else ():
            assert self._context is not None
            outbox = self._context.socket(zmq.PUSH)
            _limit(outbox)
            inbox.password.unlock(outbox)
            outbox.connect(inbox.address)
            self._engines.append(_Engine(outbox, ThreadPoolExecutor(1, "weights")))

    def finalize(self) -> None:
        """Close everything; what was sent is still delivered."""
        for outbox, thread in self._engines:
            thread.shutdown(cancel_futures=True)
            outbox.close()
        if self._inbox is not None:
            self._inbox.close()
        if self._context is not None:
            self._context.term()
        self._engines, self._inbox, self._context = [], None, None

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        """Send every tensor; the learner's other ranks only take part in gathering them.

        Raises:
            LonghaulError: If an engine does not take them.
        """
        on_the_way: deque[tuple[int, list[Future[None]]]] = deque()
        num_bytes = 0
        for name, tensor in weights:
            if not self._engines:
                continue
            head, body = self._packed(name, tensor)
            on_the_way.append((body.nbytes, self._hand_out([head, body])))
            num_bytes += body.nbytes
            while num_bytes > self._bucket_size and len(on_the_way) > 1:
                num_bytes -= await _taken(*on_the_way.popleft())
        on_the_way.append((0, self._hand_out([END, END])))
        while on_the_way:
            await _taken(*on_the_way.popleft())

    def _packed(self, name: str, tensor: torch.Tensor) -> tuple[bytes, np.ndarray[Any, Any]]:
        """A tensor's header, and its numbers as bytes: a copy, since the learner's may change."""
        floating = tensor.is_floating_point()
        host = tensor.detach().to(
            device="cpu",
            dtype=self._dtype if floating and self._dtype is not None else tensor.dtype,
            copy=True,
            memory_format=torch.contiguous_format,
        )
        head = {"name": name, "shape": list(host.shape), "dtype": str(host.dtype)}
        return json.dumps(head).encode(), host.reshape(-1).view(torch.uint8).numpy()

    def _hand_out(self, parts: list[Any]) -> list[Future[None]]:
        return [thread.submit(_deliver, outbox, parts) for outbox, thread in self._engines]

    def receive_weights(self, global_steps: int | None = None) -> Any:  # noqa: ANN401
        """An asynchronous generator of every tensor as it was sent, on this process's device.

        verl declares a coroutine, and iterates over what it gets.

        Raises:
            LonghaulError: If the learner sends nothing.
        """
        return self._received()

    async def _received(self) -> AsyncGenerator[tuple[str, torch.Tensor]]:
        while (arrived := await asyncio.to_thread(self._receive)) is not None:
            name, tensor = arrived
            yield name, tensor.to(get_device_id())

    def _receive(self) -> tuple[str, torch.Tensor] | None:
        """The next tensor, in memory of its own; None at the end."""
        assert self._inbox is not None
        try:
            head = self._inbox.recv()
        except zmq.Again as error:
            raise LonghaulError(_silence("the learner sent no weights")) from error
        # The parts of a message arrive together.
        if head == END:
            self._inbox.recv()
            return None
        header = json.loads(head)
        dtype = getattr(torch, header["dtype"].removeprefix("torch."))
        tensor = torch.empty(header["shape"], dtype=dtype)
        self._inbox.recv_into(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return header["name"], tensor


def _deliver(outbox: zmq.Socket[bytes], parts: list[Any]) -> None:
    """Send a message, and wait until its bytes are no longer needed."""
    try:
        sent = cast("zmq.MessageTracker", outbox.send_multipart(parts, copy=False, track=True))
        sent.wait(LONGEST_SILENCE_SECONDS)
    except (zmq.Again, zmq.NotDone) as error:
        raise LonghaulError(_silence("an engine took no weights")) from error


async def _taken(num_bytes: int, deliveries: list[Future[None]]) -> int:
    """Wait until every engine has a message; returns its length."""
    for delivery in deliveries:
        await asyncio.wrap_future(delivery)
    return num_bytes


def _limit(socket: zmq.Socket[bytes]) -> None:
    milliseconds = int(LONGEST_SILENCE_SECONDS * 1000)
    socket.setsockopt(zmq.RCVTIMEO, milliseconds)
    socket.setsockopt(zmq.SNDTIMEO, milliseconds)
    socket.setsockopt(zmq.LINGER, milliseconds)
    # A tensor or two on the way is enough: more would be held in memory.
    socket.setsockopt(zmq.SNDHWM, 2)
    socket.setsockopt(zmq.RCVHWM, 2)


def _silence(what: str) -> str:
    return (
        f"{what} within {LONGEST_SILENCE_SECONDS:g} s; see logs/processes.log of the run's folder"
    )


cast("Any", CheckpointEngineRegistry).register(BACKEND)(TcpCheckpointEngine)
