"""verl's client of the rollout server, for replies that an update interrupts.

An update aborts the replies in flight, and verl asks for the rest of each anew, with the same
seed. vLLM begins a request's random numbers at its seed, so the rest would be drawn with the
numbers that drew the beginning: no sample of the policy, though its logprobs say that it is.
A request without a seed is drawn by the engine's generator, which goes on.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from longhaul_core.rollout import continuation_seed

QUEUE_SECONDS = "queue_seconds"
"""Key in a reply's `extra_fields`: how long its requests waited for the engine, where it says."""


class _SeedByLength(LLMServerClient):
    """Samples from a given token on with a seed of its own, and records how long it waited."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        waits: list[float],
        **others: Any,  # noqa: ANN401  # verl's
    ) -> TokenOutput:
        """See `LLMServerClient.generate`; seconds in the queue are appended to `waits`."""
        if "seed" in sampling_params:
            seed = continuation_seed(sampling_params["seed"], num_tokens=len(prompt_ids))
            sampling_params = {**sampling_params, "seed": seed}
        output = await super().generate(
            request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **others
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
        """See `LLMServerClient.generate`; all requests of the reply count as its wait."""
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
