"""The guide's table of costs is what its program prints."""

from pathlib import Path

import recipe_costs

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gpus.md"


def test_the_table_of_costs_is_that_of_the_estimate_today() -> None:
    table = recipe_costs.cost_table()

    assert table == recipe_costs.PART.read(GUIDE), (
        "write it anew: python benchmarks/recipe_costs.py docs/guides/gpus.md"
    )
    assert len(table.splitlines()) == 2 + 2 * 8  # ScalingInter-RL's row is GRPO's
