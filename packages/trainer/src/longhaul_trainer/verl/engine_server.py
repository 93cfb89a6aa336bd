"""verl's vLLM server, which hands on a reply in two parts and knows how long it waited.

verl's server receives every token of every reply as an output of its own, with all tokens before
it and their text, in the one process that all requests of an engine pass through; it reads the last
one. Here vLLM hands on a reply's first token and then all others, and makes no text of them: the
agent loop does. The last output alone (vLLM's `FINAL_ONLY`) would not do: by the first one verl
learns that a request is in the engine, and what aborts the replies in flight, as an update does,
waits for that, up to a minute.

vLLM counts when it began on a request; verl leaves that out of what it returns.

verl's server also answers HTTP on the node's network address, whoever asks, and weights can be
changed there. Nothing of a run does, since all is asked by Ray: here no HTTP server is started.

A reply that somebody wants token by token is handed on by vLLM after each token, and its tokens go
into the outbox of the client besides (`streams.py`); all other replies stay as cheap as they are.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.utils import get_vision_placeholder_token_ids
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from longhaul_trainer.verl.client import QUEUE_SECONDS
from longhaul_trainer.verl.engine_updates import PrivateWorkerExtension
from longhaul_trainer.verl.model_classes import ask_a_fork
from longhaul_trainer.verl.private_folder import private_folder
from longhaul_trainer.verl.streams import Outboxes, StreamName, TokenListener


def settings_of_vllm(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How vLLM is asked for a reply in two parts, beside a `stream_interval` longer than any.

    Args:
        asked: By vLLM's names; values as JSON has them.
    """
    settings = dict(asked)
    if "logit_bias" in settings:
        bias = settings["logit_bias"].items()
        settings["logit_bias"] = {int(token): float(value) for token, value in bias}
    if "structured_outputs" in settings:
        settings["structured_outputs"] = StructuredOutputsParams(**settings["structured_outputs"])
    # A stop word is found in the text, which vLLM makes for that alone.
    has_words = bool(settings.get("stop"))
    return settings | {"output_kind": RequestOutputKind.DELTA, "detokenize": has_words}


class WholeReplies:
    """vLLM's engine as verl's server uses it; each output holds all of the reply so far."""

    def __init__(self, engine: Any) -> None:  # noqa: ANN401  vLLM's AsyncLLM
        self._engine = engine
        self.queue_seconds: dict[str, float] = {}
        """Statistics of each request that has ended, until they are read here."""
        self.listeners: dict[str, TokenListener] = {}
        """Who wants each token, by request."""
        self._add_request = engine.output_processor.add_request
        engine.output_processor.add_request = self._added

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the engine has
        return getattr(self._engine, name)

    async def generate(self, *, request_id: str, **asked: Any) -> AsyncGenerator[RequestOutput]:  # noqa: ANN401
        """See `AsyncLLM.generate`."""
        began = time.perf_counter()
        whole: RequestOutput | None = None
        parts: AsyncGenerator[RequestOutput] = self._engine.generate(request_id=request_id, **asked)
        listener = self.listeners.get(request_id)
        async for part in parts:
            if listener is not None:
                listener(part.outputs[0].token_ids)
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

    def _added(self, request: Any, *others: Any, **named: Any) -> None:  # noqa: ANN401  vLLM's
        """Take a request as vLLM's output processor does, before the engine has it."""
        self._add_request(request, *others, **named)
        if request.external_req_id in self.listeners:
            self._engine.output_processor.request_states[request.request_id].stream_interval = 1


class EngineServer(vLLMHttpServer):
    """verl's server of one engine."""

    def _post_init(self, cuda_visible_devices: str) -> None:
        super()._post_init(cuda_visible_devices)
        self.prepare_requests()

    def prepare_requests(self) -> None:
        """Have a place for what is known of requests in flight."""
        self._parked_seconds: dict[str, float] = {}
        self._outboxes = Outboxes()

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        super()._preprocess_engine_kwargs(engine_kwargs)
        engine_kwargs.setdefault("stream_interval", self.config.max_model_len)

    def _get_worker_extension_cls(self) -> str:
        return f"{PrivateWorkerExtension.__module__}.{PrivateWorkerExtension.__qualname__}"

    async def run_server(self, args: argparse.Namespace) -> None:
        """Start the engine as `vLLMHttpServer.run_server` does, and no HTTP server before it."""
        # vLLM puts the sockets of its processes there.
        os.environ.setdefault("VLLM_RPC_BASE_PATH", str(private_folder()))
        asked = AsyncEngineArgs.from_cli_args(args)
        usage = UsageContext.OPENAI_API_SERVER
        ask_a_fork()
        config: Any = asked.create_engine_config(usage_context=usage)
        config.parallel_config.data_parallel_master_port = self._dp_master_port
        engine = AsyncLLM.from_vllm_config(
            vllm_config=config,
            usage_context=usage,
            enable_log_requests=asked.enable_log_requests,
            disable_log_stats=asked.disable_log_stats,
        )
        await engine.reset_mm_cache()
        await engine.collective_rpc(
            method="monkey_patch_model",
            kwargs={
                "vocab_size": len(self.model_config.tokenizer),
                "banned_token_ids": get_vision_placeholder_token_ids(self.model_config.processor),
            },
        )
        self.engine = WholeReplies(engine)
        # verl tells servers apart by their address; this port is held, and nobody listens there.
        self._server_port = self._master_port

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
        stream: StreamName | None = None,
        **named: Any,  # noqa: ANN401
    ) -> TokenOutput:
        """See `vLLMHttpServer.generate`; also reports the wait for an update and in the queue.

        Args:
            prompt_ids: See there.
            sampling_params: See there.
            request_id: See there.
            others: See there.
            stream: Where the tokens go while they are written; None for a reply in two parts.
            named: See there.
        """
        settings = settings_of_vllm(sampling_params)
        if stream is None:
            return await self._reply(prompt_ids, settings, request_id, *others, **named)
        client, number = stream
        with self._outboxes.using(client) as outbox:
            self.engine.listeners[request_id] = partial(outbox.put, number)
            try:
                return await self._reply(prompt_ids, settings, request_id, *others, **named)
            finally:
                del self.engine.listeners[request_id]

    async def take_tokens(self, client: str) -> Sequence[tuple[int, list[int]]]:
        """Tokens of the client's streams that it has not got yet; waits for some, not for ever."""
        with self._outboxes.using(client) as outbox:
            return await outbox.take()

    async def end_taking(self, client: str) -> None:
        """Have the client's `take_tokens` return: it has no streams any more."""
        with self._outboxes.using(client) as outbox:
            outbox.wake()

    async def _reply(
        self,
        prompt_ids: list[int],
        settings: dict[str, Any],
        request_id: str,
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> TokenOutput:
        try:
            output = await super().generate(prompt_ids, settings, request_id, *others, **named)
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
