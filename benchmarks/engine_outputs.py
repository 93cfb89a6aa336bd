"""What the process that all requests of an engine pass through spends on a token of a reply.

vLLM's own output processor and queues, with SmolLM2's tokenizer, are told what an engine core has
sampled: for verl's server as it is (every token an output, with the text so far), for ours (two
outputs a reply, without text), and for ours with vLLM's statistics, by which it knows how long a
request waited. What verl and Ray do with a reply is not in it.

    python benchmarks/engine_outputs.py
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# vLLM and transformers are typed in part.

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, NamedTuple

import numpy as np
from transformers import AutoTokenizer
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.outputs import LogprobsLists

from longhaul_trainer.models import prepare_model

NUM_REPLIES = 64
NUM_TOKENS = 128
NUM_ROUNDS = 5


class Way(NamedTuple):
    """How replies are asked for."""

    kind: RequestOutputKind
    text: bool
    stream_interval: int
    log_stats: bool


WAYS = {
    "verl's server": Way(RequestOutputKind.CUMULATIVE, True, 1, False),
    "in two parts, without text": Way(RequestOutputKind.DELTA, False, 4096, False),
    "in two parts, with statistics": Way(RequestOutputKind.DELTA, False, 4096, True),
}


def sampled() -> list[list[EngineCoreOutput]]:
    """What an engine core reports, pass by pass: a token of each reply."""
    tokens = np.random.default_rng(0).integers(100, 40_000, (NUM_TOKENS, NUM_REPLIES))
    return [
        [
            EngineCoreOutput(
                request_id=str(reply),
                new_token_ids=[int(token)],
                new_logprobs=LogprobsLists(np.array([[token]]), np.array([[-0.5]]), np.array([1])),
                finish_reason=FinishReason.LENGTH if place == NUM_TOKENS - 1 else None,
            )
            for reply, token in enumerate(of_pass)
        ]
        for place, of_pass in enumerate(tokens)
    ]


async def processed(way: Way, tokenizer: Any) -> tuple[float, int]:  # noqa: ANN401
    """Microseconds of processor time a token, and the outputs that were handed on."""
    processor = OutputProcessor(
        tokenizer, log_stats=way.log_stats, stream_interval=way.stream_interval
    )

    async def num_outputs_of(name: str) -> int:
        asked = SamplingParams(
            max_tokens=NUM_TOKENS, logprobs=0, output_kind=way.kind, detokenize=way.text
        )
        request = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=list(range(500)),
            mm_features=None,
            sampling_params=asked,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            external_req_id=name,
        )
        queue = RequestOutputCollector(way.kind, name)
        processor.add_request(request, None, queue=queue)
        number, finished = 0, False
        while not finished:
            number += 1
            finished = (queue.get_nowait() or await queue.get()).finished
        return number

    replies = [asyncio.create_task(num_outputs_of(str(reply))) for reply in range(NUM_REPLIES)]
    await asyncio.sleep(0)
    passes = sampled()
    began = time.process_time()
    for outputs in passes:
        processor.process_outputs(
            outputs,
            engine_core_timestamp=1.0,
            iteration_stats=IterationStats() if way.log_stats else None,
        )
        await asyncio.sleep(0)
    num_outputs = sum(await asyncio.gather(*replies))
    seconds = time.process_time() - began
    return 1e6 * seconds / (NUM_REPLIES * NUM_TOKENS), num_outputs


def main() -> None:
    """Print one line for each way."""
    tokenizer: Any = AutoTokenizer.from_pretrained(prepare_model("smollm2"))
    asyncio.run(processed(WAYS["verl's server"], tokenizer))  # warm
    for name, way in WAYS.items():
        rounds = [asyncio.run(processed(way, tokenizer)) for _ in range(NUM_ROUNDS)]
        each = statistics.median(microseconds for microseconds, _ in rounds)
        print(
            f"{name}: {each:.1f} us a token, {rounds[0][1]} outputs of {NUM_REPLIES} replies of "
            f"{NUM_TOKENS} tokens"
        )


if __name__ == "__main__":
    main()
