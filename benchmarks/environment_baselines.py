"""Prints what fixed policies score in the packaged environments, on all of their test tasks.

The best constant action and the best position are chosen on validation tasks.

Run: `python benchmarks/environment_baselines.py`
"""

import time

from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.tasks import Panel
from longhaul_core.types import Split
from longhaul_envs.baselines import baseline_scores
from longhaul_envs.sources import environment_source

SETTINGS: list[tuple[str, dict[str, object], int]] = [
    ("longhaul/TextCraft-v0", {"depth": 1}, 6),
    ("longhaul/TextCraft-v0", {"depth": 1, "distractors": 6}, 6),
    ("longhaul/TextCraft-v0", {"depth": 2}, 12),
    ("longhaul/TextCraft-v0", {"depth": 2}, 20),
    ("longhaul/TextCraft-v0", {"depth": 3}, 30),
    ("longhaul/TextCraft-v0", {"depth": 4, "num_variants": 32}, 50),
    ("longhaul/BabyAI-v0", {"levels": ["GoToObj"]}, 6),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocalS8N4"]}, 4),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocal"]}, 4),
    ("longhaul/BabyAI-v0", {"levels": ["GoToLocal"], "actions": "primitive"}, 20),
    ("longhaul/BabyAI-v0", {"levels": ["PickupLoc"]}, 6),
    ("longhaul/BabyAI-v0", {"levels": ["PutNextLocal"]}, 20),
    ("longhaul/BabyAI-v0", {"levels": ["UnlockLocal"]}, 12),
    ("longhaul/BabyAI-v0", {"levels": ["GoToSeq"]}, 40),
    ("longhaul/BabyAI-v0", {"levels": ["BossLevel"]}, 50),
    ("longhaul/Sokoban-v0", {"size": 5, "min_pushes": 1}, 10),
    ("longhaul/Sokoban-v0", {"size": 6, "num_boxes": 1}, 20),
    ("longhaul/Sokoban-v0", {"size": 6, "num_boxes": 2}, 30),
    ("longhaul/Sokoban-v0", {"size": 8, "num_boxes": 3}, 50),
]
"""Environment id, options, horizon."""

NUM_CHOSEN_ON = 64
"""Validation tasks, at most, on which the best constant policies are chosen."""


def main() -> None:
    """Print a line for each policy in each setting."""
    for environment_id, options, horizon in SETTINGS:
        spec = GymEnvironmentSpec(
            environment_id=environment_id,
            options=options,
            import_modules=("longhaul_envs.registry",),
        )
        started = time.perf_counter()
        source = environment_source(spec)
        tasks, others = source.tasks(Split.TEST), source.tasks(Split.VALIDATION)
        panel = Panel.spread(
            others, split=Split.VALIDATION, num_tasks=min(NUM_CHOSEN_ON, len(others))
        )
        print(f"\n{environment_id} {options}, horizon {horizon}, {len(tasks)} test tasks")
        for scored in baseline_scores(spec, tasks, chosen_on=panel.tasks, horizon=horizon):
            low, high = scored.success_interval
            print(
                f"  success {scored.success_rate:6.1%} ({low:.1%} to {high:.1%})  "
                f"return {scored.mean_return:6.3f}  steps {scored.mean_steps:5.1f}  {scored.policy}"
            )
        print(f"  ({time.perf_counter() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
