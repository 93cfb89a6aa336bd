"""verl's client of the rollout server, for replies that an update interrupts.

An update aborts the replies in flight, and verl asks for the rest of each anew, with the same
seed. vLLM begins a request's random numbers at its seed, so the rest would be drawn with the
numbers that drew the beginning: no sample of the policy, though its logprobs say that it is.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from longhaul_core.rollout import continuation_seed


class _SeedByLength(LLMServerClient):
    """Draws what follows so many tokens by a seed of its own."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **others: Any,  # noqa: ANN401  # verl's
    ) -> TokenOutput:
        """See `LLMServerClient.generate`."""
        seed = continuation_seed(sampling_params["seed"], num_tokens=len(prompt_ids))
        return await super().generate(
            request_id,
            prompt_ids=prompt_ids,
            sampling_params={**sampling_params, "seed": seed},
            **others,
        )


class InterruptibleClient(FullyAsyncLLMServerClient, _SeedByLength):
    """Finishes interrupted replies: verl's loop over requests, each with a seed of its own."""
