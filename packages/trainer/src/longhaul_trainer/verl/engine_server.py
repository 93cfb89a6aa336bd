"""verl's vLLM server, which hands on a reply in two parts and knows how long it waited.

verl's server receives every token of every reply as an output of its own, with all tokens before
it and their text, in the one process that all requests of an engine pass through; it reads the last
one. Here vLLM hands on a reply's first token and then all others, and makes no text of them: the
agent loop does. The last output alone (vLLM's `FINAL_ONLY`) would not do: by the first one verl
learns that a request is in the engine, and what aborts the replies in flight, as an update does,
waits for that, up to a minute.

vLLM counts when it began on a request; verl leaves that out of what it returns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncGenerator
from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from longhaul_trainer.verl.client import QUEUE_SECONDS

IN_TWO_PARTS = {"output_kind": RequestOutputKind.DELTA, "detokenize": False}
"""How vLLM is asked for a reply, beside a `stream_interval` longer than any."""


class WholeReplies:
    """vLLM's engine as verl's server uses it; each output holds all of the reply so far."""

    def __init__(self, engine: Any) -> None:  # noqa: ANN401  vLLM's AsyncLLM
        self._engine = engine
        self.queue_seconds: dict[str, float] = {}
        """Statistics of each request that has ended, until they are read here."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the engine has
        return getattr(self._engine, name)

    async def generate(self, *, request_id: str, **asked: Any) -> AsyncGenerator[RequestOutput]:  # noqa: ANN401
        """See `AsyncLLM.generate`."""
        began = time.perf_counter()
        whole: RequestOutput | None = None
        parts: AsyncGenerator[RequestOutput] = self._engine.generate(request_id=request_id, **asked)
        async for part in parts:
            if whole is None:
                whole = part
            else:
                whole.add(part, aggregate=True)
            for reply in whole.outputs:
                # A part without a token, as of a reply that is aborted, repeats all logprobs.
                if reply.logprobs is not None:
                    del reply.logprobs[len(reply.token_ids) :]
            yield whole
        stats = None if whole is None else whole.metrics
        if stats is not None:
            never_began = stats.scheduled_ts == 0.0
            self.queue_seconds[request_id] = (
                time.perf_counter() - began if never_began else stats.scheduled_ts - stats.queued_ts
            )


class EngineServer(vLLMHttpServer):
    """verl's server of one engine."""

    def _post_init(self, cuda_visible_devices: str) -> None:
        super()._post_init(cuda_visible_devices)
        self._parked_seconds: dict[str, float] = {}

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        super()._preprocess_engine_kwargs(engine_kwargs)
        engine_kwargs.setdefault("stream_interval", self.config.max_model_len)

    async def run_server(self, args: argparse.Namespace) -> None:
        """See `vLLMHttpServer.run_server`."""
        await super().run_server(args)
        self.engine = WholeReplies(self.engine)

    async def _park_until_admitted(self, request_id: str) -> TokenOutput | None:
        began = time.perf_counter()
        rejected = await super()._park_until_admitted(request_id)
        self._parked_seconds[request_id] = time.perf_counter() - began
        return rejected

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        *others: Any,  # noqa: ANN401  # verl's
        **named: Any,  # noqa: ANN401
    ) -> TokenOutput:
        """See `vLLMHttpServer.generate`; also reports the wait for an update and in the queue."""
        try:
            output = await super().generate(
                prompt_ids, sampling_params | IN_TWO_PARTS, request_id, *others, **named
            )
        finally:
            parked = self._parked_seconds.pop(request_id, 0.0)
            queued = self.engine.queue_seconds.pop(request_id, 0.0)
        output.extra_fields[QUEUE_SECONDS] = parked + queued
        return output


class EngineReplica(vLLMReplica):
    """verl's engine on one or more GPUs, behind our server."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  # verl's
        super().__init__(*arguments, **options)
        self.server_class = ray.remote(EngineServer)
