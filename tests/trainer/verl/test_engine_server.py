"""Tests for `longhaul_trainer.verl.engine_server`: replies in two parts, through vLLM's own code.

vLLM's output processor and verl's server are real; what is played is the engine core, which needs
a model: it says which tokens it sampled, and when it began.
"""

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from verl_process import IMPORTS_VERL

if TYPE_CHECKING:
    from longhaul_trainer.verl.engine_server import EngineServer

pytestmark = IMPORTS_VERL


@pytest.fixture(scope="module", autouse=True)
def logs_are_kept(cpu_run: None) -> None:
    """A library that vLLM imports sets the root logger and its handlers to ERROR, pytest's too."""
    levels = {each: each.level for each in (logging.root, *logging.root.handlers)}
    importlib.import_module("longhaul_trainer.verl.engine_server")

    for each, level in levels.items():
        each.setLevel(level)


QUEUED_AT, BEGAN_AT = 100.0, 100.25
"""In seconds, by the engine core's clock."""


class PlayedEngine:
    """What verl's server uses of vLLM's engine, above an engine core that is told what to sample.

    The numbers of tokens are 1, 2, 3, …, and their logprobs these, negative and in tenths.
    """

    def __init__(self, *, stream_interval: int) -> None:
        from vllm.v1.engine.output_processor import OutputProcessor

        self.output_processor = OutputProcessor(
            None, log_stats=True, stream_interval=stream_interval
        )
        self.num_outputs = 0
        """That were handed to whoever iterates over a reply."""
        self.is_paused = False

    async def generate(
        self,
        *,
        prompt: Any,  # noqa: ANN401
        sampling_params: Any,  # noqa: ANN401
        request_id: str,
        **others: object,
    ) -> AsyncGenerator[Any]:
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.output_processor import RequestOutputCollector

        request = EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=prompt["prompt_token_ids"],
            mm_features=None,
            sampling_params=sampling_params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id=request_id,
        )
        queue = RequestOutputCollector(sampling_params.output_kind, request_id)
        self.output_processor.add_request(request, None, queue=queue)
        finished = False
        while not finished:  # as in `AsyncLLM.generate`
            output: Any = queue.get_nowait() or await queue.get()
            self.num_outputs += 1
            finished = output.finished
            yield output

    def sample(self, request_id: str, *tokens: int, last: bool = False) -> None:
        """Report tokens of a request one by one, as an engine core does."""
        from vllm.v1.engine import (
            EngineCoreEvent,
            EngineCoreEventType,
            EngineCoreOutput,
            FinishReason,
        )
        from vllm.v1.metrics.stats import IterationStats, PrefillStats
        from vllm.v1.outputs import LogprobsLists

        for token in tokens:
            first = token == 1
            began = [
                EngineCoreEvent(EngineCoreEventType.QUEUED, QUEUED_AT),
                EngineCoreEvent(EngineCoreEventType.SCHEDULED, BEGAN_AT),
            ]
            read = PrefillStats()
            read.set(num_prompt_tokens=3, num_local_cached_tokens=2, num_external_cached_tokens=0)
            output = EngineCoreOutput(
                request_id=request_id,
                new_token_ids=[token],
                new_logprobs=LogprobsLists(
                    np.array([[token]]), np.array([[-token / 10]]), np.array([1])
                ),
                finish_reason=FinishReason.STOP if last and token == tokens[-1] else None,
                events=began if first else None,
                prefill_stats=read if first else None,
            )
            self.output_processor.process_outputs(
                [output], engine_core_timestamp=BEGAN_AT + token, iteration_stats=IterationStats()
            )

    async def pause_generation(self, **how: object) -> None:
        """Abort what is in flight, as `AsyncLLM` does."""
        self.is_paused = True
        states = self.output_processor.request_states
        self.output_processor.abort_requests(list(states), internal=True)


def server_of(engine: PlayedEngine) -> "EngineServer":
    """Our server above it, without Ray and without a model."""
    from longhaul_trainer.verl.engine_server import EngineServer, WholeReplies

    server = EngineServer.__new__(EngineServer)
    fields: dict[str, object] = {
        "config": SimpleNamespace(
            max_model_len=1000,
            full_determinism=False,
            enable_rollout_routing_replay=False,
            mtp=None,
            get=lambda name, default=None: default,  # pyright: ignore[reportUnknownLambdaType]
        ),
        "model_config": SimpleNamespace(processor=None, lora_rank=0, lora={}),
        "engine": WholeReplies(engine),
        "node_rank": 0,
        "replica_rank": 0,
        "global_steps": 7,
        "_disaggregation_role": "null",
        "_pd_decode_peers": [],
        "_submission_paused": False,
        "_rejecting": False,
        "_admitting": 0,
        "_resume_event": asyncio.Event(),
    }
    for name, value in fields.items():
        setattr(server, name, value)
    server.prepare_requests()
    return server


def ask(server: "EngineServer", request_id: str = "one") -> "asyncio.Task[Any]":
    """Request a reply to three tokens, as the agent loop does."""
    return asyncio.create_task(
        server.generate([11, 12, 13], {"logprobs": True, "max_tokens": 100}, request_id)
    )


async def settled() -> None:
    """Let what can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_reply_has_two_outputs_and_all_its_tokens_and_logprobs() -> None:
    async def play() -> tuple[Any, int]:
        engine = PlayedEngine(stream_interval=1000)
        reply = ask(server_of(engine))
        await settled()
        for token in range(1, 50):
            engine.sample("one", token)
            await settled()
        engine.sample("one", 50, last=True)
        return await reply, engine.num_outputs

    output, num_outputs = asyncio.run(play())

    assert num_outputs == 2
    assert list(output.token_ids) == list(range(1, 51))
    assert output.log_probs == pytest.approx([-token / 10 for token in range(1, 51)])
    assert (output.stop_reason, output.extra_fields["global_steps"]) == ("completed", 7)


def test_the_wait_in_the_engines_queue_and_the_tokens_it_had_kept_are_reported() -> None:
    async def play() -> tuple[dict[str, Any], float]:
        began = time.perf_counter()
        engine = PlayedEngine(stream_interval=1000)
        reply = ask(server_of(engine))
        await settled()
        engine.sample("one", 1, 2, last=True)
        return (await reply).extra_fields, time.perf_counter() - began

    fields, seconds = asyncio.run(play())

    assert fields["num_cached_tokens"] == 2
    in_queue = BEGAN_AT - QUEUED_AT
    assert in_queue - 1e-6 <= fields["queue_seconds"] <= in_queue + seconds


def test_the_wait_for_an_update_is_a_part_of_it() -> None:
    async def play() -> tuple[float, float]:
        engine = PlayedEngine(stream_interval=1000)
        server: Any = server_of(engine)
        server._submission_paused = True
        reply = ask(server)
        await settled()
        began = time.perf_counter()
        await asyncio.sleep(0.3)
        waited = time.perf_counter() - began
        server._submission_paused = False
        server._resume_event.set()
        await settled()
        engine.sample("one", 1, last=True)
        return (await reply).extra_fields["queue_seconds"], waited

    queue_seconds, waited = asyncio.run(play())

    assert waited > 0.29
    assert queue_seconds >= waited + BEGAN_AT - QUEUED_AT - 1e-6


@pytest.mark.parametrize("num_tokens", [0, 1, 2, 30])
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "not taken yet"])
def test_an_aborted_reply_has_the_tokens_that_were_sampled_and_a_logprob_each(
    num_tokens: int, taken: bool
) -> None:
    async def play() -> Any:  # noqa: ANN401
        engine = PlayedEngine(stream_interval=1000)
        reply = ask(server_of(engine))
        await settled()
        engine.sample("one", *range(1, num_tokens + 1))
        if taken:
            await settled()
        await engine.pause_generation()
        return await reply

    output = asyncio.run(play())

    assert output.stop_reason == "aborted"
    assert list(output.token_ids) == list(range(1, num_tokens + 1))
    assert output.log_probs == pytest.approx([-n / 10 for n in range(1, num_tokens + 1)])


def test_replies_in_flight_are_aborted_at_once() -> None:
    """With vLLM's last output alone, verl would wait a minute for them to end."""

    async def play() -> tuple[bool, Any]:
        engine = PlayedEngine(stream_interval=1000)
        server = server_of(engine)
        reply = ask(server)
        await settled()
        engine.sample("one", 1, 2, 3)
        await settled()
        await asyncio.wait_for(server.abort_all_requests(), timeout=30)
        return engine.is_paused, await reply

    paused, output = asyncio.run(play())

    assert paused
    assert list(output.token_ids) == [1, 2, 3]


def test_a_reply_that_never_began_waited_all_the_time() -> None:
    async def play() -> tuple[float, float]:
        engine = PlayedEngine(stream_interval=1000)
        reply = ask(server_of(engine))
        await settled()
        began = time.perf_counter()
        await asyncio.sleep(0.2)
        waited = time.perf_counter() - began
        await engine.pause_generation()
        return (await reply).extra_fields["queue_seconds"], waited

    queue_seconds, waited = asyncio.run(play())

    assert queue_seconds >= waited > 0.19


def test_verl_launches_our_server_with_an_interval_longer_than_any_reply() -> None:
    from longhaul_trainer.verl.engine_server import EngineReplica, EngineServer
    from longhaul_trainer.verl.trainer import _vllm_replica

    assert _vllm_replica() is EngineReplica
    server: Any = EngineServer.__new__(EngineServer)
    server.config = SimpleNamespace(max_model_len=576, checkpoint_engine=None)
    options: dict[str, Any] = {}
    server._preprocess_engine_kwargs(options)
    assert options["stream_interval"] == 576
