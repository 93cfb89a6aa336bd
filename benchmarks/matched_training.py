"""Does the truth of an estimator's credit predict how fast it trains? GraphGPO beside GRPO.

    python benchmarks/matched_training.py run FOLDER       warm-starts and trains
    python benchmarks/matched_training.py report FOLDER    prints the tables

GraphGPO orders the steps of a group best by docs/credit_truth.md, and GRPO, with the estimators
that give all steps of an episode one advantage, worst of those that raise the mean return. Task,
policy, training and statistics are `learning.py`'s; the plan is in docs/credit_truth.md. A second
`run` skips the runs that are finished.
"""

import argparse
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from learning import (
    SEEDS,
    Trial,
    finish,
    finished,
    mean_difference,
    print_audits,
    print_means,
    read_curve,
)
from learning_plot import Curve
from learning_policy import warm_started

from longhaul_core.evaluation import cluster_bootstrap_difference, cluster_t_difference

BEST, WORST = "graphgpo", "grpo"
LEARNING_RATE = 1e-3
"""Of both: the rate that `learning.py`'s tuning chose for each of its three estimators."""
NUM_TRAINING_STEPS = 20


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description="Training by two estimators of unlike truth.")
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("folder", type=Path, help="holds the policy and the stores")
    parser.add_argument("--processes", type=int, default=2, help="runs at once, one core each")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    if arguments.command == "report":
        report(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    warm_started(folder)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        finish(pool, folder, [trial(name, seed) for seed in SEEDS for name in (BEST, WORST)])


def trial(algorithm: str, seed: int) -> Trial:
    """One run of the plan."""
    return Trial(
        algorithm, LEARNING_RATE, seed, tuning=False, num_training_steps=NUM_TRAINING_STEPS
    )


def report(folder: Path) -> None:
    """Print the curves, the difference, and the audit of every run."""
    done = finished(folder)
    complete = [
        seed for seed in SEEDS if all(trial(name, seed).name in done for name in (BEST, WORST))
    ]
    print(f"seeds with both estimators: {complete}")
    curves = [
        [read_curve(done[trial(name, seed).name], trial(name, seed)) for seed in complete]
        for name in (BEST, WORST)
    ]
    for own in curves:
        print_means(own)
    if len(complete) > 1:
        print_difference(*curves)
    print_audits([done[trial(name, seed).name] for seed in complete for name in (BEST, WORST)])


def print_difference(best: Sequence[Curve], worst: Sequence[Curve]) -> None:
    """The primary comparison, and the last validation beside it."""
    steps = sorted(best[0].success)[1:]
    for measure, chosen in (("mean of all", steps), ("last", steps[-1:])):
        found = [mean_difference(*pair, chosen) for pair in zip(best, worst, strict=True)]
        drawn = cluster_bootstrap_difference(found, seed=0, confidence=0.95)
        t = cluster_t_difference(found, confidence=0.95)
        counts = all(i.low > 0 or i.high < 0 for i in (drawn, t))
        each = ", ".join(f"{np.mean(values):+.3f}" for values in found)
        print(
            f"{BEST} less {WORST}, {measure}: {t.estimate:+.3f}, bootstrap "
            f"[{drawn.low:+.3f}, {drawn.high:+.3f}], t [{t.low:+.3f}, {t.high:+.3f}], "
            f"counts: {'yes' if counts else 'no'}; seeds: {each}"
        )


if __name__ == "__main__":
    main()
