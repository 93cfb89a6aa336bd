"""How long weights take to engines over TCP, to several at once and to one after the other.

A learner in float32 and engines in bfloat16, each engine a process of its own, on this machine: no
network is between them, so what is measured are copies and the processors that make them. Beside
`TcpCheckpointEngine` stands the way that it replaced, which sent float32 to each engine in turn.

    python benchmarks/weight_transfer.py [megabytes of float32 weights]
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch
import zmq

os.environ["VERL_PLATFORM"] = "cpu"  # read while verl is imported

from longhaul_trainer.verl.weight_transfer import END, Inbox, TcpCheckpointEngine

NUMS_ENGINES = (1, 2, 4)
LAYER_PARAMETERS = 4 * 2**20
"""Of one tensor; a model of 1.5 billion parameters has matrices of 2 to 14 million."""
BUCKET_BYTES = 512 * 2**20
ROUNDS = 3

Way = Callable[[list[Inbox], int], None]


def weights(megabytes: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of float32 that make up so many megabytes; all are the same one."""
    tensor = torch.arange(LAYER_PARAMETERS, dtype=torch.float32)
    for layer in range(megabytes * 2**20 // tensor.nbytes):
        yield f"layer {layer}", tensor


def to_all_at_once(inboxes: list[Inbox], megabytes: int, *, dtype: str) -> None:
    """As `separate_async` does, in the engines' precision."""
    learner = TcpCheckpointEngine(BUCKET_BYTES, is_master=True, dtype=dtype)
    learner.prepare()
    learner.init_process_group(inboxes=inboxes)
    asyncio.run(learner.send_weights(weights(megabytes)))
    learner.finalize()


def to_one_after_the_other(inboxes: list[Inbox], megabytes: int) -> None:
    """As it did before: each tensor as it is, copied for each engine in turn."""
    with zmq.Context() as context:
        outboxes = [context.socket(zmq.PUSH) for _ in inboxes]
        for outbox, inbox in zip(outboxes, inboxes, strict=True):
            outbox.setsockopt(zmq.SNDHWM, 2)
            inbox.password.unlock(outbox)
            outbox.connect(inbox.address)
        for name, tensor in weights(megabytes):
            head = {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}
            body = tensor.view(torch.uint8).numpy().data
            for outbox in outboxes:
                outbox.send_multipart([json.dumps(head).encode(), body])
        for outbox in outboxes:
            outbox.send_multipart([END, END])
            outbox.close()


WAYS: tuple[Way, ...] = (
    to_one_after_the_other,
    partial(to_all_at_once, dtype="float32"),
    partial(to_all_at_once, dtype="bfloat16"),
)


def receive(parent: Connection) -> None:
    """Be an engine: say where it listens, and how many bytes came when all have."""
    engine = TcpCheckpointEngine(0)
    parent.send(engine.prepare()["inbox"])

    async def num_bytes() -> int:
        return sum([tensor.nbytes async for _, tensor in engine.receive_weights()])

    parent.send(asyncio.run(num_bytes()))
    engine.finalize()


def measured(send: Way, *, num_engines: int, megabytes: int) -> tuple[float, int]:
    """Seconds until the last engine has everything, and the bytes that all of them got."""
    fork = multiprocessing.get_context("fork")  # verl is imported once
    engines: list[tuple[BaseProcess, Connection]] = []
    for _ in range(num_engines):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=receive, args=(theirs,))
        process.start()
        engines.append((process, ours))
    inboxes = [pipe.recv() for _, pipe in engines]
    began = time.perf_counter()
    send(inboxes, megabytes)
    num_bytes = sum(pipe.recv() for _, pipe in engines)
    seconds = time.perf_counter() - began
    for process, _ in engines:
        process.join()
    return seconds, num_bytes


def main() -> None:
    """Print one line for each number of engines."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    torch.set_num_threads(1)
    print(f"{megabytes} MB of float32 weights, best of {ROUNDS}")
    for num_engines in NUMS_ENGINES:
        (before, bytes_before), (same, _), (now, bytes_now) = (
            min(measured(way, num_engines=num_engines, megabytes=megabytes) for _ in range(ROUNDS))
            for way in WAYS
        )
        print(
            f"{num_engines} engines: one after the other {before:.2f} s, {bytes_before / 1e6:,.0f} "
            f"MB; at once {same:.2f} s; at once in bfloat16 {now:.2f} s, "
            f"{bytes_now / 1e6:,.0f} MB: {before / now:.1f} times as fast"
        )


if __name__ == "__main__":
    main()
