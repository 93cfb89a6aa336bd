"""Do AgentEvol and DPO raise what a model that imitated a few experts scores?

Run: `python benchmarks/imitation_gains.py FOLDER [SEED …]`. For each seed whose runs FOLDER does
not hold yet, a new model of `@long/key_door` imitates 64 experts' episodes, plays training tasks,
and is trained twice from what it played: by a second round of `trainer evolve` (AgentEvol), and by
DPO over pairs of a won episode, or an expert's, and a lost one. All weights play the same held-out
tasks.
Prints success before and after, and the difference over tasks and seeds with its 95 % interval.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from sqlalchemy import text

from longhaul_core.evaluation import cluster_bootstrap_difference, cluster_t_difference
from longhaul_core.evaluation.paired import paired_differences
from longhaul_core.store import read_only_engine
from longhaul_trainer.run.directory import RunDirectory

SEEDS = (1, 2, 3)
HELD_OUT = 256
"""Tasks that all weights play."""
SETTINGS = (
    "warm_start.demonstrations=64",
    "evolution.rounds=2",
    "evolution.tasks=128",
    "evolution.samples_per_task=4",
    f"validation.test_num_tasks={HELD_OUT}",
)
PREFERENCES = (
    "imitation.loss=dpo",
    "imitation.beta=0.1",
    "imitation.pairs_per_task=2",
    "num_training_steps=16",
    "tasks_per_training_step=32",
    "optimizer.optimizer_steps_per_training_step=1",
    "optimizer.learning_rate=1e-3",
    "optimizer.warmup_training_steps=1",
    "validation.num_tasks=0",
    "checkpoint.every=16",
)


def main() -> None:
    """Run what is missing, and print."""
    folder = Path(sys.argv[1]).absolute()
    seeds = [int(seed) for seed in sys.argv[2:]] or list(SEEDS)
    for seed in seeds:
        if not is_tested(folder, seed):
            run(folder, seed)
    names = {"AgentEvol": "test-2", "DPO": "preferred"}
    gains: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for seed in seeds:
        before = successes(folder, evolution(folder, seed) / "test-1")
        for name, part in names.items():
            parent = folder / f"{seed}" if part == "preferred" else evolution(folder, seed)
            after = successes(folder, parent / part)
            gains[name].append(paired_differences(before, after))
            print(f"seed {seed}: {mean(before):.1%} before, {mean(after):.1%} after {name}")
    for name, found in gains.items():
        if len(found) > 1:
            drawn = cluster_bootstrap_difference(found, seed=0)
            over_seeds = cluster_t_difference(found)
            print(
                f"{name}: {drawn.estimate:+.3f}, 95 % interval over tasks and seeds "
                f"[{drawn.low:+.3f}, {drawn.high:+.3f}] (bootstrap), "
                f"over the means of the seeds [{over_seeds.low:+.3f}, {over_seeds.high:+.3f}] (t)"
            )


def run(folder: Path, seed: int) -> None:
    """Both methods of a seed, from the same first round; what is finished is not done again."""
    place = folder / f"{seed}"
    place.mkdir(parents=True, exist_ok=True)
    common = (f"seed={seed}", f"store={folder / 'longhaul.db'}", f"runs_directory={place}")
    begun = RunDirectory.all(place / "evolutions")
    words = [str(begun[0].path)] if begun else ["@long/key_door", *common, *SETTINGS]
    trainer("evolve", *words)
    parts = evolution(folder, seed)
    experts, first = (newest(parts / name) for name in ("start/demonstrations", "round-1"))
    assert experts is not None
    assert first is not None
    sources = (
        f'[{{run="{experts.run_id}"}}, {{run="{first.run_id}", where={{phase="validation"}}}}]'
    )
    trainer(
        "imitate",
        "@long/key_door",
        *common,
        *PREFERENCES,
        f"imitation.sources={sources}",
        f"model.path={first.model}",
        f"name=preferred-{seed}",
    )
    preferred = newest(place)
    assert preferred is not None
    panel = (f"validation.test_num_tasks={HELD_OUT}", f"runs_directory={place / 'preferred'}")
    trainer("evaluate", str(preferred.path), "--weights", "final", *panel)


def is_tested(folder: Path, seed: int) -> bool:
    """Whether the last evaluation of a seed played all its tasks."""
    place = folder / f"{seed}" / "preferred"
    return newest(place) is not None and len(successes(folder, place)) == HELD_OUT


def trainer(*words: str) -> None:
    """One command; an error ends the benchmark."""
    program = str(Path(sys.executable).with_name("trainer"))
    subprocess.run([program, *words], check=True)


def evolution(folder: Path, seed: int) -> Path:
    """The folder of a seed's evolution."""
    return RunDirectory.all(folder / f"{seed}" / "evolutions")[-1].path


def newest(parent: Path) -> RunDirectory | None:
    """The newest run below a folder, or below its folder of evaluations."""
    found = RunDirectory.all(parent) or RunDirectory.all(parent / "evaluations")
    return max(found, key=lambda run: run.run_id, default=None)


def successes(folder: Path, parent: Path) -> dict[str, float]:
    """Share of won episodes by held-out task, of the newest evaluation below a folder."""
    tested = newest(parent)
    assert tested is not None, parent
    engine = read_only_engine(str(folder / "longhaul.db"))
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT task_id, avg(CASE WHEN success THEN 1.0 ELSE 0.0 END) FROM episode_summary "
                "WHERE run_id = :run AND phase = 'test' AND NOT failed GROUP BY task_id"
            ),
            {"run": tested.run_id},
        ).all()
    engine.dispose()
    return {str(task): float(rate) for task, rate in rows}


def mean(values: Mapping[str, float]) -> float:
    """Mean over tasks."""
    return float(np.mean(list(values.values())))


if __name__ == "__main__":
    main()
