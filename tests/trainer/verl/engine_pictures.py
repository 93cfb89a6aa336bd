"""Run by `test_engine_pictures.py`, in a process of its own: replies to pictures, and new weights.

Writes as JSON, for each family, how far the engine's log-probabilities are from those of
transformers, in nats: with the pictures that the engine was shown, and with others of the same
sizes in their places.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from longhaul_core.types import Message, Picture
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from longhaul_trainer.rendering.pictures import load_picture_reader
from longhaul_trainer.rendering.renderer import load_renderer
from longhaul_trainer.verl.variables import prepare_environment
from pictures import png

RED, BLUE = (Picture.of(png(colour, width=160, height=160)) for colour in ("red", "blue"))
WIDE, OTHER_WIDE = (Picture.of(png(colour, width=96, height=64)) for colour in ("red", "green"))
OTHER = {RED: BLUE, BLUE: RED, WIDE: OTHER_WIDE}
SHOWN = ((), (RED,), (BLUE,), (RED, BLUE), (BLUE, WIDE))
"""Of one episode; the last one's pictures differ in size."""


class Reloading:
    """A worker extension that takes weights from a file as ours takes them from the trainer."""

    def reload(self, weights: str) -> int:
        """Put the weights of a safetensors file in force; returns how many there were."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        from longhaul_trainer.verl.cpu import engine as cpu_engine

        runner: Any = getattr(self, "model_runner")  # noqa: B009  of the worker it extends
        model = runner.get_model()
        tensors = load_file(weights)
        initialize_layerwise_reload(model)
        model.load_weights((name, tensor.clone()) for name, tensor in tensors.items())
        cpu_engine.finish_reload(model, runner.model_config)
        return len(tensors)


def main(folder: str, *families: str) -> None:
    """Compare replies, reload, and compare again; the results are a file in `folder`."""
    scratch = Path(folder)
    prepare_environment("cpu", scratch=scratch)
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    results: dict[str, Any] = {}
    for family in families:
        results[family] = compared(scratch / family, family)
        cleanup_dist_env_and_memory()
    (scratch / "result.json").write_text(json.dumps(results), encoding="utf-8")


def compared(model: Path, family: str) -> dict[str, list[dict[str, float]]]:
    """Of an engine of this family, which is gone afterwards."""
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from verl.workers.engine.fsdp.utils import unfuse_moe_params
    from verl.workers.rollout.utils import qwen2_5_vl_dedup_image_tokens
    from vllm import LLM, SamplingParams

    from longhaul_trainer.verl.model_classes import ask_a_fork

    import_module("longhaul_trainer.verl.cpu.engine")  # as a worker of ours does
    ask_a_fork()
    model.mkdir()
    write_tiny_vision_model(model, family=family)
    reader, renderer = load_picture_reader(model), load_renderer(model)
    assert reader is not None
    load: Any = AutoProcessor.from_pretrained
    processor: Any = load(model)
    plain: Any = AutoModelForImageTextToText.from_pretrained(
        model, dtype=torch.float32, attn_implementation="sdpa"
    )
    engine: Any = LLM(
        str(model),
        dtype="float32",
        enforce_eager=True,
        kv_cache_memory_bytes=2**27,
        max_model_len=512,
        logprobs_mode="processed_logprobs",
        worker_extension_cls=f"{Path(__file__).stem}.{Reloading.__qualname__}",
    )

    def distance(prompt: list[int], tokens: list[int], logprobs: list[float], shown: Any) -> float:  # noqa: ANN401
        """Of a reply, under transformers' model with these pictures."""
        whole = torch.tensor([prompt + tokens])
        places = (whole == processor.image_token_id).int()
        images = [reader.image(picture) for picture in shown]
        read = processor.image_processor(images, return_tensors="pt") if images else {}
        with torch.no_grad():
            logits = plain(input_ids=whole, mm_token_type_ids=places, **read).logits
        chosen = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        expected = chosen.gather(-1, torch.tensor([tokens]).T).squeeze(-1).tolist()
        return max(abs(one - other) for one, other in zip(logprobs, expected, strict=True))

    def distances() -> list[dict[str, float]]:
        found: list[dict[str, float]] = []
        for shown in SHOWN:
            prompt = list(renderer.render((Message(role="user", content=("Where?", *shown)),)))
            asked: dict[str, Any] = {
                "prompt_token_ids": qwen2_5_vl_dedup_image_tokens(prompt, processor)
            }
            if shown:
                images = [reader.image(picture) for picture in shown]
                asked["multi_modal_data"] = {"image": images}
            settings = SamplingParams(max_tokens=8, logprobs=0, seed=1, ignore_eos=True)
            output = engine.generate([asked], settings, use_tqdm=False)[0]
            assert list(output.prompt_token_ids) == prompt, "the engine expands pictures as we do"
            (reply,) = output.outputs
            tokens = list(reply.token_ids)
            pairs = zip(tokens, reply.logprobs, strict=True)
            logprobs = [table[token].logprob for token, table in pairs]
            found.append(
                {
                    "own": distance(prompt, tokens, logprobs, shown),
                    "other": distance(prompt, tokens, logprobs, [OTHER[each] for each in shown]),
                }
            )
        return found

    result = {"before": distances()}
    draw = torch.Generator().manual_seed(0)
    changed = {
        name: (weight * (1 + 0.3 * torch.randn(weight.shape, generator=draw))).contiguous()
        for name, weight in plain.state_dict().items()
        if name != "lm_head.weight"
    }
    weights = model.with_suffix(".safetensors")
    save_file(dict(unfuse_moe_params(changed.items(), family)), weights)  # as verl sends them
    plain.load_state_dict(changed, strict=False)
    plain.tie_weights()
    engine.collective_rpc("reload", args=(str(weights),))
    engine.reset_prefix_cache()
    result["new weights, old features"] = distances()
    engine.reset_prefix_cache()
    engine.llm_engine.engine_core.reset_encoder_cache()  # as verl's server does with new weights
    result["after"] = distances()
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
