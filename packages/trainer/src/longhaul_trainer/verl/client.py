"""verl's clients of the rollout server: replies that are streamed, given up, or interrupted.

Whoever stops waiting for a reply ends its request in the engine, which would otherwise write the
rest for nobody. A reply may be handed on token by token while it is written.

An update aborts the replies in flight, and verl asks for the rest of each anew, with the same
seed. vLLM begins a request's random numbers at its seed, so the rest would be drawn with the
numbers that drew the beginning: no sample of the policy, though its logprobs say that it is.
A request without a seed is drawn by the engine's generator, which goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from longhaul_core.rollout import continuation_seed
from longhaul_trainer.verl.streams import TokenListener, TokenStreams

QUEUE_SECONDS = "queue_seconds"
"""Key in a reply's `extra_fields`: how long its requests waited for the engine, where it says."""


class _CancellableMethod:
    """A method of an actor; a caller that is cancelled cancels it there."""

    def __init__(self, method: Any) -> None:  # noqa: ANN401  Ray's
        self._method = method

    async def remote(self, **asked: Any) -> Any:  # noqa: ANN401
        """Call it and wait for its answer."""
        answer = self._method.remote(**asked)
        try:
            return await answer
        except asyncio.CancelledError:
            ray.cancel(answer, recursive=False)
            raise


class _CancellableServer:
    """A rollout server as verl's client uses it."""

    def __init__(self, server: Any) -> None:  # noqa: ANN401  an actor's handle
        self.generate = _CancellableMethod(server.generate)


class EngineClient(LLMServerClient):
    """verl's client, which gives up requests that nobody waits for, and streams.

    Where there is one engine nobody chooses: two of three calls of a reply are left out, which ask
    verl's load balancer for an engine and give it back.
    """

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401  # verl's
        only_engine: tuple[str, Any] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """See `LLMServerClient`.

        Args:
            arguments: See there.
            only_engine: Address and handle of the one there is; None asks the load balancer.
            options: See there.
        """
        super().__init__(*arguments, **options)
        self._only_engine = only_engine
        self._streams = TokenStreams()

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:  # noqa: ANN401
        server_id, server = self._only_engine or await super()._acquire_server(request_id, **extra)
        if extra.get("stream") is not None:
            self._streams.listen(server_id, server)
        return server_id, _CancellableServer(server)

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        if self._only_engine is None:
            super()._release_server(server_id, request_id)

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        on_tokens: TokenListener | None = None,
        **others: Any,  # noqa: ANN401  # verl's
    ) -> TokenOutput:
        """See `LLMServerClient.generate`.

        Args:
            request_id: See there.
            prompt_ids: See there.
            sampling_params: See there.
            on_tokens: Called with new tokens while the reply is written, and with all of them by
                the time that it is returned; None for a reply that is wanted as a whole.
            others: See there.
        """
        if on_tokens is None:
            return await super().generate(
                request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **others
            )
        with self._streams.opened(on_tokens) as (name, finish):
            output = await super().generate(
                request_id,
                prompt_ids=prompt_ids,
                sampling_params=sampling_params,
                stream=name,
                **others,
            )
            finish(output.token_ids)
            return output


class _SeedByLength(EngineClient):
    """Samples from a given token on with a seed of its own, and records how long it waited."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        waits: list[float],
        on_tokens: TokenListener | None = None,
        **others: Any,  # noqa: ANN401  # verl's
    ) -> TokenOutput:
        """See `EngineClient.generate`; seconds in the queue are appended to `waits`."""
        if waits and sampling_params.get("stop"):
            on_tokens = None  # a stop word that the interruption lies in is found at the end
        if "seed" in sampling_params:
            seed = continuation_seed(sampling_params["seed"], num_tokens=len(prompt_ids))
            sampling_params = {**sampling_params, "seed": seed}
        output = await super().generate(
            request_id,
            prompt_ids=prompt_ids,
            sampling_params=sampling_params,
            on_tokens=on_tokens,
            **others,
        )
        waits.append(output.extra_fields.get(QUEUE_SECONDS, 0.0))
        return output


class InterruptibleClient(FullyAsyncLLMServerClient, _SeedByLength):
    """Finishes interrupted replies: verl's loop over requests, each with a seed of its own."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **others: Any,  # noqa: ANN401  # verl's
    ) -> TokenOutput:
        """See `EngineClient.generate`; all requests of the reply count as its wait.

        Where the reply has stop words, what comes after an interruption is not streamed.
        """
        waits: list[float] = []
        output = await super().generate(
            request_id,
            prompt_ids=prompt_ids,
            sampling_params=sampling_params,
            waits=waits,
            **others,
        )
        output.extra_fields[QUEUE_SECONDS] = sum(waits)
        return output
