"""Tests for `longhaul_trainer.verl.weight_transfer`: what is sent arrives, or somebody says so."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch
import zmq

from longhaul_trainer.verl.locks import Password
from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

pytestmark = IMPORTS_VERL

WEIGHTS = {
    "embedding": torch.arange(6, dtype=torch.float32).reshape(3, 2),
    "rounded": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
    "scalar": torch.tensor(0.25),
    "counts": torch.tensor([3, 2**40]),
    "nothing": torch.empty(0, 4),
}

MEGABYTE = 2**20


def send(learner: "TcpCheckpointEngine", weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    asyncio.run(learner.send_weights(weights))


def receive(engine: "TcpCheckpointEngine") -> list[tuple[str, torch.Tensor]]:
    async def received() -> list[tuple[str, torch.Tensor]]:
        return [pair async for pair in engine.receive_weights()]

    return asyncio.run(received())


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_every_engine_gets_every_tensor_in_its_precision_in_order_and_again(
    dtype: str | None,
) -> None:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    learners = [TcpCheckpointEngine(0, is_master=rank == 0, dtype=dtype) for rank in range(2)]
    engines = [TcpCheckpointEngine(0, dtype=dtype) for _ in range(2)]
    gathered: list[str] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in WEIGHTS.items():
            gathered.append(name)
            yield name, tensor

    for _ in range(2):
        metadata = [one.prepare() for one in (*learners, *engines)]
        of_learners, of_engines = TcpCheckpointEngine.build_topology(2, 2, metadata)
        for one, inboxes in zip(
            (*learners, *engines), (*of_learners["inboxes"], *of_engines["inboxes"]), strict=True
        ):
            one.init_process_group(inboxes=inboxes)
        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(send, one, weights()) for one in learners]
            received = [pool.submit(receive, one) for one in engines]
            for one in sent:
                one.result(60)
            for got in (one.result(60) for one in received):
                assert [name for name, _ in got] == list(WEIGHTS)
                for name, tensor in got:
                    whole = WEIGHTS[name]
                    if dtype is not None and whole.is_floating_point():
                        whole = whole.to(getattr(torch, dtype))
                    assert tensor.dtype == whole.dtype
                    assert torch.equal(tensor, whole)
        for one in (*learners, *engines):
            one.finalize()
    assert sorted(gathered) == sorted([*WEIGHTS] * 4)  # by both ranks, which gather together


def test_no_more_bytes_travel_than_the_engines_precision_takes() -> None:
    """Counted at the socket: a learner in float32, an engine in bfloat16."""
    from longhaul_trainer.verl.weight_transfer import END, Inbox, TcpCheckpointEngine

    weights = [(f"layer {n}", torch.full((1000, 50), n / 7)) for n in range(20)]
    num_parameters = sum(tensor.numel() for _, tensor in weights)
    learner = TcpCheckpointEngine(MEGABYTE, is_master=True, dtype="bfloat16")
    learner.prepare()
    password = Password.drawn()
    context = zmq.Context()
    with context.socket(zmq.PULL) as inbox:
        inbox.setsockopt(zmq.RCVTIMEO, 60_000)
        password.lock(inbox)
        port = inbox.bind_to_random_port("tcp://127.0.0.1")
        learner.init_process_group(inboxes=[Inbox(f"tcp://127.0.0.1:{port}", password)])
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send, learner, weights)
            bodies: list[int] = []
            while (parts := inbox.recv_multipart()) != [END, END]:
                bodies.append(len(parts[1]))
            sent.result(60)
        learner.finalize()
    context.term()

    assert len(bodies) == len(weights)
    assert sum(bodies) <= num_parameters * torch.bfloat16.itemsize


def test_an_engine_that_is_slow_holds_no_other_back() -> None:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    weights = [(f"layer {n}", torch.full((MEGABYTE,), float(n))) for n in range(24)]
    learner = TcpCheckpointEngine(200 * MEGABYTE, is_master=True)
    slow, quick = TcpCheckpointEngine(0), TcpCheckpointEngine(0)
    learner.prepare()
    learner.init_process_group(inboxes=[one.prepare()["inbox"] for one in (slow, quick)])
    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(send, learner, weights)
        try:
            # Nobody reads for the slow one yet.
            assert len(pool.submit(receive, quick).result(60)) == len(weights)
        finally:
            assert len(receive(slow)) == len(weights)
            sent.result(60)
    for one in (learner, slow, quick):
        one.finalize()


def test_the_sender_holds_no_more_than_its_bucket_for_a_slow_engine() -> None:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    gathered: list[int] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(60):
            gathered.append(number)
            yield f"layer {number}", torch.full((MEGABYTE,), float(number))

    learner, engine = TcpCheckpointEngine(12 * MEGABYTE, is_master=True), TcpCheckpointEngine(0)
    learner.prepare()
    learner.init_process_group(inboxes=[engine.prepare()["inbox"]])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, learner, weights())
        with pytest.raises(TimeoutError):
            sent.result(3)
        # Three tensors of 4 MB, one more, and what sockets and the system hold.
        held = len(gathered)
        assert len(receive(engine)) == 60
        sent.result(60)
    for one in (learner, engine):
        one.finalize()
    assert held < 40


def test_weights_that_the_learner_changes_afterwards_arrive_as_they_were() -> None:
    """As an adapter's, which is merged into them only while they are sent."""
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    held = torch.zeros(MEGABYTE)

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for number in range(8):
            held.fill_(number)
            yield f"layer {number}", held
        held.fill_(-1)

    learner, engine = TcpCheckpointEngine(100 * MEGABYTE, is_master=True), TcpCheckpointEngine(0)
    learner.prepare()
    learner.init_process_group(inboxes=[engine.prepare()["inbox"]])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, learner, weights())
        got = receive(engine)
        sent.result(60)
    for one in (learner, engine):
        one.finalize()

    assert [(tensor.min().item(), tensor.max().item()) for _, tensor in got] == [
        (number, number) for number in range(8)
    ]


def test_weights_of_a_stranger_are_not_taken() -> None:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    learner, engine = TcpCheckpointEngine(0, is_master=True), TcpCheckpointEngine(0)
    learner.prepare()
    inbox = engine.prepare()["inbox"]
    head = b'{"name": "embedding", "shape": [2], "dtype": "torch.float32"}'
    with zmq.Context() as context:
        for password in (None, Password.drawn()):
            with context.socket(zmq.PUSH) as stranger:
                stranger.linger, stranger.sndtimeo = 0, 1_000
                if password is not None:
                    password.unlock(stranger)
                stranger.connect(inbox.address)
                with contextlib.suppress(zmq.Again):
                    stranger.send_multipart([head, bytes(8)])
                    stranger.poll(500, zmq.POLLOUT)
    learner.init_process_group(inboxes=[inbox])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, learner, [("embedding", torch.tensor([1.0, 2.0]))])
        got = receive(engine)
        sent.result(60)
    for one in (learner, engine):
        one.finalize()

    assert [tensor.tolist() for _, tensor in got] == [[1.0, 2.0]]
    assert inbox.password.text not in repr(inbox)


def test_an_engine_that_takes_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from longhaul_core.errors import LonghaulError
    from longhaul_trainer.verl import weight_transfer

    monkeypatch.setattr(weight_transfer, "LONGEST_SILENCE_SECONDS", 0.3)
    learner = weight_transfer.TcpCheckpointEngine(0, is_master=True)
    engine = weight_transfer.TcpCheckpointEngine(0)
    learner.prepare()
    learner.init_process_group(inboxes=[engine.prepare()["inbox"]])

    with pytest.raises(LonghaulError, match=r"an engine took no weights within 0\.3 s"):
        send(learner, ((f"layer {n}", torch.zeros(4 * MEGABYTE)) for n in range(20)))
    engine.finalize()
    learner.finalize()


def test_an_engine_that_gets_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from longhaul_core.errors import LonghaulError
    from longhaul_trainer.verl import weight_transfer

    monkeypatch.setattr(weight_transfer, "LONGEST_SILENCE_SECONDS", 0.1)
    engine = weight_transfer.TcpCheckpointEngine(0)
    engine.prepare()

    async def first() -> None:
        async for _ in engine.receive_weights():
            raise AssertionError("nothing was sent")

    with pytest.raises(LonghaulError, match=r"the learner sent no weights within 0\.1 s"):
        asyncio.run(first())
    engine.finalize()
