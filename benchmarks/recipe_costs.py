"""What each recipe takes on each machine, by the arithmetic of `trainer check`.

Nothing is measured. The models are headers without weights, in a folder that is removed.

    uv run python benchmarks/recipe_costs.py                      # prints the table
    uv run python benchmarks/recipe_costs.py docs/guides/gpus.md  # writes it between the marks
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.resources import Needs, needs_of
from longhaul_trainer.resources.step_time import TYPICAL_STEPS, Range

CONFIGS = Path(__file__).parents[1] / "configs"
BEGIN, END = "<!-- costs: begin -->", "<!-- costs: end -->"
GB = 1e9

QWEN2_5: Mapping[str, Mapping[str, int | bool]] = {
    "1.5B": {
        "vocab_size": 151_936,
        "num_hidden_layers": 28,
        "hidden_size": 1_536,
        "intermediate_size": 8_960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "7B": {
        "vocab_size": 152_064,
        "num_hidden_layers": 28,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
}
"""As their `config.json` says."""

CARDS = {"24gb": "RTX 4090", "80gb": "H100"}
"""The GPU that time is estimated for, by the end of a machine file's name."""


def main() -> None:
    """Print the table, or write it into the page that is named."""
    with tempfile.TemporaryDirectory() as folder:
        table = cost_table(Path(folder))
    if len(sys.argv) == 1:
        print(table)
        return
    page = Path(sys.argv[1])
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def cost_table(folder: Path) -> str:
    """A row for each recipe and machine; recipes that cost the same share it.

    Args:
        folder: Where headers of the models are written.
    """
    models = {size: write_headers(folder / size, config) for size, config in QWEN2_5.items()}
    rows: dict[tuple[str, str], list[str]] = {}
    recipes, machines = (
        sorted((CONFIGS / name).glob("*.toml")) for name in ("recipes", "machines")
    )
    for recipe, machine in product(recipes, machines):
        run = load_config(recipe, layers=[machine])
        size = next(size for size in models if size in run.model.path)
        run = run.model_copy(
            update={"model": run.model.model_copy(update={"path": str(models[size])})}
        )
        needs = needs_of(run, device="gpu", gpu=CARDS[machine.stem.rpartition("x")[2]])
        rows.setdefault((machine.stem, _costs(run, needs)), []).append(recipe.stem)
    return "\n".join(
        [
            "| recipe | machine | GPU of at least | training step | run | environment steps "
            "| disk, store |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {', '.join(names)} | {machine} | {costs} |"
                for (machine, costs), names in rows.items()
            ),
        ]
    )


def _costs(run: RunConfig, needs: Needs) -> str:
    assert needs.gpu is not None
    assert needs.time is not None
    low, high = needs.time.seconds
    gpus, hours = run.resources.num_workers, run.num_training_steps / 3600
    most = run.tasks_per_training_step * run.rollout.group_size * run.rollout.horizon
    return " | ".join(
        [
            f"{needs.gpu.smallest / 2**30:.0f} GiB",
            f"{_span((low / 60, high / 60))} min",
            f"{_span((gpus * low * hours, gpus * high * hours))} GPU hours",
            f"{_span((most / high, TYPICAL_STEPS * most / low))} a second",
            f"{needs.disk.folder / GB:.0f} GB, up to {needs.disk.most_stored / GB:.0f} GB",
        ]
    )


def _span(ends: Range) -> str:
    low, high = (f"{end:.1f}" if end < 10 else f"{float(f'{end:.2g}'):.0f}" for end in ends)
    return f"{low} to {high}"


def write_headers(folder: Path, config: Mapping[str, int | bool]) -> Path:
    """A Hugging Face folder with the names and shapes of a Qwen2's tensors, and no numbers."""
    hidden, mlp, vocabulary = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    keys = config["num_key_value_heads"] * (hidden // config["num_attention_heads"])
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocabulary, hidden]
    of_a_layer = {
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
        "self_attn.q_proj.weight": [hidden, hidden],
        "self_attn.q_proj.bias": [hidden],
        "self_attn.k_proj.weight": [keys, hidden],
        "self_attn.k_proj.bias": [keys],
        "self_attn.v_proj.weight": [keys, hidden],
        "self_attn.v_proj.bias": [keys],
        "self_attn.o_proj.weight": [hidden, hidden],
        "mlp.gate_proj.weight": [mlp, hidden],
        "mlp.up_proj.weight": [mlp, hidden],
        "mlp.down_proj.weight": [hidden, mlp],
    }
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in of_a_layer.items()}
    return write_folder(folder, shapes, {"model_type": "qwen2"} | dict(config))


def write_folder(folder: Path, shapes: Mapping[str, list[int]], config: object) -> Path:
    """A Hugging Face folder with tensors of these names and shapes, and no numbers."""
    folder.mkdir()
    tensors = {name: {"dtype": "BF16", "shape": shape} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
