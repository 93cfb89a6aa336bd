"""The guide's table of costs is what its program prints."""

from pathlib import Path

import recipe_costs

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gpus.md"


def test_the_table_of_costs_is_that_of_the_estimate_today(tmp_path: Path) -> None:
    table = recipe_costs.cost_table(tmp_path)

    written = GUIDE.read_text("utf-8").partition(recipe_costs.BEGIN)[2]
    assert table == written.partition(recipe_costs.END)[0].strip(), (
        "write it anew: python benchmarks/recipe_costs.py docs/guides/gpus.md"
    )
    assert len(table.splitlines()) == 2 + 2 * 6  # ScalingInter-RL's row is GRPO's


def test_the_headers_are_of_the_published_sizes(tmp_path: Path) -> None:
    from longhaul_trainer.resources import model_size

    sizes = {
        name: model_size(str(recipe_costs.write_headers(tmp_path / name, config))).num_parameters
        for name, config in recipe_costs.QWEN2_5.items()
    }

    assert sizes == {"1.5B": 1_543_714_304, "7B": 7_615_616_512}
