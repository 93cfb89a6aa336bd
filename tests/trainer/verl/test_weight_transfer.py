"""Tests for `longhaul_trainer.verl.weight_transfer`: what is sent arrives, or somebody says so."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

WEIGHTS = {
    "embedding": torch.arange(6, dtype=torch.float32).reshape(3, 2),
    "rounded": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
    "scalar": torch.tensor(0.25),
}


def test_every_engine_gets_every_tensor_as_it_was_in_order_and_again() -> None:
    from longhaul_trainer.verl.weight_transfer import TcpCheckpointEngine

    learners = [TcpCheckpointEngine(0, is_master=rank == 0) for rank in range(2)]
    engines = [TcpCheckpointEngine(0) for _ in range(2)]
    gathered: list[str] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in WEIGHTS.items():
            gathered.append(name)
            yield name, tensor

    async def receive(engine: TcpCheckpointEngine) -> list[tuple[str, torch.Tensor]]:
        return [pair async for pair in engine.receive_weights()]

    for _ in range(2):
        metadata = [one.prepare() for one in (*learners, *engines)]
        of_learners, of_engines = TcpCheckpointEngine.build_topology(2, 2, metadata)
        for one, addresses in zip(
            (*learners, *engines),
            (*of_learners["addresses"], *of_engines["addresses"]),
            strict=True,
        ):
            one.init_process_group(addresses=addresses)
        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(asyncio.run, one.send_weights(weights())) for one in learners]
            received = [pool.submit(asyncio.run, receive(one)) for one in engines]
            for one in sent:
                one.result(60)
            for got in (one.result(60) for one in received):
                assert [name for name, _ in got] == list(WEIGHTS)
                for name, tensor in got:
                    assert tensor.dtype == WEIGHTS[name].dtype
                    assert torch.equal(tensor, WEIGHTS[name])
        for one in (*learners, *engines):
            one.finalize()
    assert sorted(gathered) == sorted([*WEIGHTS] * 4)  # by both ranks, which gather together


def test_an_engine_that_gets_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from longhaul_core.errors import LonghaulError
    from longhaul_trainer.verl import weight_transfer

    monkeypatch.setattr(weight_transfer, "LONGEST_SILENCE_SECONDS", 0.1)
    engine = weight_transfer.TcpCheckpointEngine(0)
    engine.prepare()

    async def receive() -> None:
        async for _ in engine.receive_weights():
            raise AssertionError("nothing was sent")

    with pytest.raises(LonghaulError, match=r"the learner sent no weights within 0\.1 s"):
        asyncio.run(receive())
    engine.finalize()
