"""What each recipe takes on each machine, by the arithmetic of `trainer check`.

Nothing is measured, and no model is needed: their published shapes will do.

    uv run python benchmarks/recipe_costs.py                      # prints the table
    uv run python benchmarks/recipe_costs.py docs/guides/gpus.md  # writes it between the marks
"""

import json
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from longhaul_core.page_part import PagePart
from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.preflight.resources import Needs, needs_of
from longhaul_trainer.preflight.resources.published import shapes_of
from longhaul_trainer.preflight.resources.step_time import TYPICAL_STEPS, Range

CONFIGS = Path(__file__).parents[1] / "configs"
PART = PagePart("costs")
GB = 1e9

CARDS = {"24gb": "RTX 4090", "80gb": "H100"}
"""The GPU that time is estimated for, by the end of a machine file's name."""


def main() -> None:
    """Print the table, or write it into the page that is named."""
    table = cost_table()
    if len(sys.argv) == 1:
        print(table)
        return
    PART.write(Path(sys.argv[1]), table)


def cost_table() -> str:
    """A row for each recipe and machine; recipes that cost the same share it."""
    rows: dict[tuple[str, str], list[str]] = {}
    recipes, machines = (
        sorted((CONFIGS / name).glob("*.toml")) for name in ("recipes", "machines")
    )
    for recipe, machine in product(recipes, machines):
        run = load_config(recipe, layers=[machine])
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


def write_headers(folder: Path, config: Mapping[str, Any]) -> Path:
    """A Hugging Face folder with the names and shapes of a model's tensors, and no numbers."""
    return write_folder(folder, dict(shapes_of(config)), config)


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
