"""Weights from the learner to engines on other machines, over plain TCP.

verl's own ways need the same accelerator on both sides and a package for it; this one needs
neither, at the price of a copy through the memory of the host. Every worker of the engines
opens a socket and reports its address; the learner's rank 0 sends each of them every tensor, in
order, and an end mark. Names and numbers arrive as they were sent.

verl imports this module by its path (`custom_backend_module`) in every process that sends or
receives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from typing import Any, cast

import ray
import torch
import zmq
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.device import get_device_id

from longhaul_core.errors import LonghaulError

BACKEND = "longhaul_tcp"
"""Name of this way in verl's settings."""

LONGEST_SILENCE_SECONDS = 300.0
"""Longest that one side waits for the other."""

END = b""


class TcpCheckpointEngine(CheckpointEngine):
    """One end of the way: the learner's if it `is_master`, or another that sends or receives."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        """Nothing is opened before `prepare`.

        Args:
            bucket_size: Of verl's other ways; tensors travel whole here.
            is_master: Whether this is the learner's rank 0.
        """
        self._is_master = is_master
        self._context = zmq.Context.instance()
        self._inbox: zmq.Socket[bytes] | None = None
        self._outboxes: list[zmq.Socket[bytes]] = []

    def prepare(self) -> dict[str, Any]:
        """Open an inbox and say where it is; the learner's workers leave theirs unread."""
        inbox = self._inbox = self._context.socket(zmq.PULL)
        _limit(inbox)
        host = ray.util.get_node_ip_address() if ray.is_initialized() else "127.0.0.1"
        port = inbox.bind_to_random_port("tcp://*")
        return {"address": f"tcp://{host}:{port}"}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Who sends to whom: the learner to every worker of the engines."""
        receivers = [one["address"] for one in metadata[actor_wg_world_size:]]
        return (
            {"addresses": [receivers] * actor_wg_world_size},
            {"addresses": [[] for _ in range(rollout_world_size)]},
        )

    def init_process_group(self, **kwargs: list[str]) -> None:
        """Connect the learner's rank 0 to the inboxes at `addresses`."""
        for address in kwargs["addresses"] if self._is_master else ():
            outbox = self._context.socket(zmq.PUSH)
            _limit(outbox)
            outbox.connect(address)
            self._outboxes.append(outbox)

    def finalize(self) -> None:
        """Close everything; what was sent is still delivered."""
        for socket in (*self._outboxes, *([self._inbox] if self._inbox else [])):
            socket.close()
        self._outboxes, self._inbox = [], None

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        """Send every tensor; the learner's other ranks only take part in gathering them.

        Raises:
            LonghaulError: If an engine does not take them.
        """
        for name, tensor in weights:
            if not self._outboxes:
                continue
            whole = tensor.detach().contiguous().cpu()
            head = {"name": name, "shape": list(whole.shape), "dtype": str(whole.dtype)}
            body = whole.reshape(-1).view(torch.uint8).numpy()
            await self._send([json.dumps(head).encode(), body])
        await self._send([END, END])

    async def _send(self, parts: list[Any]) -> None:
        for outbox in self._outboxes:
            try:
                await asyncio.to_thread(outbox.send_multipart, parts)
            except zmq.Again as error:
                raise LonghaulError(_silence("an engine took no weights")) from error

    def receive_weights(self, global_steps: int | None = None) -> Any:  # noqa: ANN401
        """An asynchronous generator of every tensor as it was sent, on this process's device.

        verl declares a coroutine, and iterates over what it gets.

        Raises:
            LonghaulError: If the learner sends nothing.
        """
        return self._received()

    async def _received(self) -> AsyncGenerator[tuple[str, torch.Tensor]]:
        assert self._inbox is not None
        while True:
            try:
                head, body = await asyncio.to_thread(self._inbox.recv_multipart)
            except zmq.Again as error:
                raise LonghaulError(_silence("the learner sent no weights")) from error
            if head == END:
                return
            header = json.loads(head)
            dtype = getattr(torch, header["dtype"].removeprefix("torch."))
            flat = torch.frombuffer(bytearray(body), dtype=dtype) if body else torch.empty(0)
            yield header["name"], flat.to(dtype).reshape(header["shape"]).to(get_device_id())


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
