"""Run by `test_engine_reload.py`, in a process of its own: samples, reloads, samples again.

Writes what a vLLM engine sampled with changed weights, as JSON: the tokens, and their
log-probabilities under the engine.
"""

import json
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from longhaul_trainer.verl.variables import prepare_environment

PROMPT = list(range(100, 140))
NUM_TOKENS = 12


class Reloading:
    """A worker extension that takes weights from a file as ours takes them from the trainer."""

    def reload(self, weights: str, finish: str) -> int:
        """Put the weights of a safetensors file in force; returns how many there were."""
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        from longhaul_trainer.verl.cpu.engine import finish_reload

        runner: Any = getattr(self, "model_runner")  # noqa: B009  of the worker it extends
        model = runner.get_model()
        tensors = load_file(weights)
        initialize_layerwise_reload(model)
        model.load_weights((name, tensor.clone()) for name, tensor in tensors.items())
        ends = {"ours": finish_reload, "vllm's": finalize_layerwise_reload}
        ends[finish](model, runner.model_config)
        return len(tensors)


def sample(engine: Any) -> dict[str, Any]:  # noqa: ANN401  vLLM is imported when it is needed
    """Tokens sampled after the prompt, and their log-probabilities."""
    from vllm import SamplingParams

    settings = SamplingParams(temperature=1.0, max_tokens=NUM_TOKENS, logprobs=0, seed=1)
    prompt = {"prompt_token_ids": PROMPT}
    (output,) = engine.generate([prompt], settings, use_tqdm=False)[0].outputs
    tokens = list(output.token_ids)
    chosen = zip(tokens, output.logprobs, strict=True)
    return {"tokens": tokens, "logprobs": [table[token].logprob for token, table in chosen]}


def main(model: str, weights: str, scratch: str, result: str) -> None:
    """Load `model`, then put `weights` in force with vLLM's own last step, then with ours."""
    prepare_environment("cpu", scratch=Path(scratch))
    from vllm import LLM

    from longhaul_trainer.verl.model_classes import ask_a_fork

    ask_a_fork()
    engine = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        kv_cache_memory_bytes=2**27,
        max_model_len=128,
        logprobs_mode="processed_logprobs",
        worker_extension_cls=f"{Path(__file__).stem}.{Reloading.__qualname__}",
        enable_prefix_caching=False,
    )
    found = {"before": sample(engine)}
    for finish in ("vllm's", "ours"):
        engine.collective_rpc("reload", args=(weights, finish))
        found[finish] = sample(engine)
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
