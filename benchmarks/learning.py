"""Does credit per step pay? GiGPO beside GRPO and RLOO, learning curves over seeds.

    python benchmarks/learning.py run FOLDER       warm-starts, tunes and trains
    python benchmarks/learning.py report FOLDER    prints the tables and draws the plot

A second `run` skips the runs that are finished and begins the others anew. The plan is the
constants below, described in docs/learning.md; both were committed before the first run.

Each run is one process: episodes by `run_episode`, credit by `credit_training_step`, the loss by
`ppo_loss`, the store by `StoreWriter`, and a plain torch sampler and AdamW in the place of vLLM
and verl, whose start-up alone would have spent the time. What is compared is the estimators.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from learning_plot import LABELS, Curve, plot
from learning_policy import warm_started
from learning_run import OneProcessRun
from sqlalchemy.orm import Session

from longhaul_core.audit import AuditReport, audit_run
from longhaul_core.evaluation import (
    Interval,
    cluster_bootstrap_difference,
    cluster_t_difference,
)
from longhaul_core.evaluation.paired import paired_differences
from longhaul_core.store import StoreWriter, read_only_engine
from longhaul_core.store.queries import (
    EpisodeFilter,
    evaluations,
    get_run,
    list_episodes,
    list_runs,
    training_curve,
)
from longhaul_core.types import Split
from longhaul_trainer.config import RunConfig

FloatArray = npt.NDArray[np.float64]

# The plan

ENVIRONMENT = "longhaul/KeyDoor-v0"
HORIZON = 50
TASKS_PER_TRAINING_STEP = 8
GROUP_SIZE = 8
OPTIMIZER_STEPS = 1
"""Of each training step."""
WARMUP_TRAINING_STEPS = 5
"""AdamW's first steps are as long as its rate whatever the gradient, so the rate rises."""

ALGORITHMS = ("gigpo", "grpo", "rloo")
SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)
NUM_TRAINING_STEPS = 40
VALIDATE_EVERY = 5
NUM_PANEL_TASKS = 256

LEARNING_RATES = (1e-4, 3e-4, 1e-3)
TUNING_SEED = 100
NUM_TUNING_STEPS = 20
"""Tuning is judged as the runs are, on a panel of its own, of the test split."""

CONFIDENCE = 0.975
"""Of each of the two comparisons, so that both together hold with 0.95."""


class Trial(NamedTuple):
    """One run of the plan."""

    algorithm: str
    learning_rate: float
    seed: int
    tuning: bool
    num_training_steps: int = NUM_TRAINING_STEPS

    @property
    def name(self) -> str:
        """The run's name in the store."""
        kind = "tuning" if self.tuning else "learning"
        return f"{kind}-{self.algorithm}-{self.learning_rate:g}-{self.seed}"


TUNING = [
    Trial(algorithm, rate, TUNING_SEED, tuning=True, num_training_steps=NUM_TUNING_STEPS)
    for rate in LEARNING_RATES
    for algorithm in ALGORITHMS
]


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description="Learning curves of three algorithms.")
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("folder", type=Path, help="holds the policy and the store")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    parser.add_argument("--processes", type=int, default=2, help="runs at once, one core each")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    if arguments.command == "run":
        folder.mkdir(parents=True, exist_ok=True)
        run_plan(folder, num_processes=arguments.processes)
    else:
        report(folder, arguments.docs)


def run_plan(folder: Path, *, num_processes: int) -> None:
    """Every run of the plan that the store does not hold as finished."""
    warm_started(folder)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        finish(pool, folder, TUNING)
        rates = chosen_rates(folder)
        print(f"chosen learning rates: {rates}", flush=True)
        trials = [
            Trial(algorithm, rates[algorithm], seed, tuning=False)
            for seed in SEEDS
            for algorithm in ALGORITHMS
        ]
        finish(pool, folder, trials)


def finish(pool: ProcessPoolExecutor, folder: Path, trials: Sequence[Trial]) -> None:
    """Train what is missing of `trials`, in their order."""
    done = finished(folder)
    missing = [trial for trial in trials if trial.name not in done]
    for trial, seconds in zip(
        missing, pool.map(train, itertools.repeat(folder), missing), strict=True
    ):
        print(f"{trial.name}: {seconds:.0f} s", flush=True)


class Finished(NamedTuple):
    """Where a finished run is."""

    store: Path
    run_id: str


def store_of(folder: Path, trial: Trial) -> Path:
    """The store of one run: runs at once that share a SQLite file wait for each other."""
    return folder / f"{trial.name}.db"


def finished(folder: Path) -> dict[str, Finished]:
    """Every finished run of the stores in `folder`, by its name."""
    found: dict[str, Finished] = {}
    for store in sorted(folder.glob("*.db")):
        with opened(store) as session:
            for run in list_runs(session, status="finished", kind="train"):
                name = get_run(session, run_id=run.run_id).summary.name
                found[name] = Finished(store, run.run_id)
    return found


@contextlib.contextmanager
def opened(store: Path) -> Generator[Session]:
    """A session that reads a store."""
    engine = read_only_engine(store)
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


def chosen_rates(folder: Path) -> dict[str, float]:
    """The learning rate of each algorithm that did best in tuning; the smaller of equals."""
    done = finished(folder)
    rates: dict[str, float] = {}
    for algorithm in ALGORITHMS:
        scores = {
            trial.learning_rate: mean_score(done[trial.name])
            for trial in TUNING
            if trial.algorithm == algorithm
        }
        print(f"tuning of {algorithm}: {scores}", flush=True)
        rates[algorithm] = max(sorted(scores), key=lambda rate: scores[rate])
    return rates


def mean_score(run: Finished) -> float:
    """Success rate on the run's panel, the mean of its validations."""
    with opened(run.store) as session:
        scores = evaluations(session, run_id=run.run_id)
    return float(np.mean([score.success_rate for score in scores]))


def configuration(folder: Path, trial: Trial) -> RunConfig:
    """What the run is, as `trainer train` would read it."""
    return RunConfig.model_validate(
        {
            "name": trial.name,
            "seed": trial.seed,
            "num_training_steps": trial.num_training_steps,
            "tasks_per_training_step": TASKS_PER_TRAINING_STEP,
            "store": str(store_of(folder, trial)),
            "runs_directory": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "engine_dtype": "float32"},
            "environment": {"id": ENVIRONMENT},
            "rollout": {
                "group_size": GROUP_SIZE,
                "horizon": HORIZON,
                "max_reply_tokens": 1,
                "max_prompt_tokens": 24,
            },
            "memory": {"kind": "none"},
            "prompt": {"system": "", "instruction": "", "list_actions": False},
            "actions": {"format": "plain"},
            "algorithm": {"name": trial.algorithm},
            "optimizer": {
                "learning_rate": trial.learning_rate,
                "optimizer_steps_per_training_step": OPTIMIZER_STEPS,
                "warmup_training_steps": WARMUP_TRAINING_STEPS,
            },
            "validation": {
                "num_tasks": NUM_PANEL_TASKS,
                "test_num_tasks": NUM_PANEL_TASKS,
                "every": VALIDATE_EVERY,
                "before": not trial.tuning,
            },
            "resources": {"device": "cpu"},
        }
    )


def train(folder: Path, trial: Trial) -> float:
    """One run from its start to its end, into the store; seconds that it took."""
    started = time.monotonic()
    torch.set_num_threads(1)
    with StoreWriter(store_of(folder, trial)) as writer:
        panel = Split.TEST if trial.tuning else Split.VALIDATION
        OneProcessRun(configuration(folder, trial), writer, panel=panel).go()
    return time.monotonic() - started


def report(folder: Path, docs: Path) -> None:
    """Print the tables, audit every run, draw the plot."""
    rates = chosen_rates(folder)
    done = finished(folder)
    runs = {
        seed: [Trial(algorithm, rates[algorithm], seed, tuning=False) for algorithm in ALGORITHMS]
        for seed in SEEDS
    }
    complete = [seed for seed in SEEDS if all(trial.name in done for trial in runs[seed])]
    print(f"seeds with all algorithms: {complete}")
    print_audits(list(done.values()))
    if len(complete) < 2:
        print("fewer than two seeds are complete: there is nothing to compare")
        return
    curves = [read_curve(done[trial.name], trial) for seed in complete for trial in runs[seed]]
    print_curves(curves)
    differences = print_differences(curves)
    plot(curves, differences, docs / "images" / "learning_curves.png")


def read_curve(run: Finished, trial: Trial) -> Curve:
    """The curve of one run."""
    with opened(run.store) as session:
        summary = get_run(session, run_id=run.run_id).summary
        assert summary.ended_at is not None
        return Curve(
            algorithm=trial.algorithm,
            seed=trial.seed,
            success={
                score.training_step: panel_success(session, run.run_id, score.training_step)
                for score in evaluations(session, run_id=run.run_id)
            },
            training=[
                (point.training_step, point.success_rate)
                for point in training_curve(session, run_id=run.run_id, phase="train")
                if point.success_rate is not None
            ],
            minutes=(summary.ended_at - summary.started_at) / 60,
        )


def panel_success(session: Session, run_id: str, training_step: int) -> dict[str, float]:
    """Success by task at one validation; of the sampled episodes there is one a task."""
    where = EpisodeFilter(
        run_id=run_id,
        phase="validation",
        min_training_step=training_step,
        max_training_step=training_step,
    )
    page = list_episodes(session, where=where, limit=10_000)
    return {row.task_id: float(bool(row.success)) for row in page.rows}


def print_curves(curves: Sequence[Curve]) -> None:
    """Success on the panel by training step: the mean over seeds, and every seed."""
    for algorithm in ALGORITHMS:
        print_means([curve for curve in curves if curve.algorithm == algorithm])


def print_means(curves: Sequence[Curve]) -> None:
    """A table of one algorithm's curves."""
    steps = sorted(curves[0].success)
    print("\n| success on the panel after | " + " | ".join(map(str, steps)) + " | minutes |")
    print("|---" * (len(steps) + 2) + "|")
    means = [float(np.mean([curve.rate(step) for curve in curves])) for step in steps]
    cells = " | ".join(f"**{mean:.3f}**" for mean in means)
    minutes = sum(curve.minutes for curve in curves)
    print(f"| {curves[0].algorithm}, mean of {len(curves)} | {cells} | {minutes:.1f} |")
    for curve in curves:
        cells = " | ".join(f"{curve.rate(step):.3f}" for step in steps)
        print(f"| seed {curve.seed} | {cells} | {curve.minutes:.1f} |")


def print_differences(curves: Sequence[Curve]) -> dict[str, tuple[Interval, list[float]]]:
    """The comparisons of the plan.

    Returns:
        Other algorithm, to the primary comparison with it: the t interval, and the difference of
        each seed.
    """
    steps = sorted(curves[0].success)
    primary: dict[str, tuple[Interval, list[float]]] = {}
    print("\n| GiGPO less | validations | mean | bootstrap | t over seeds | counts |")
    print("|---|---|---|---|---|---|")
    for other in ALGORITHMS[1:]:
        for measure, chosen in (("mean of all", steps[1:]), ("last", steps[-1:])):
            found = [mean_difference(gigpo, its, chosen) for gigpo, its in pairs(curves, other)]
            drawn = cluster_bootstrap_difference(found, seed=0, confidence=CONFIDENCE)
            t = cluster_t_difference(found, confidence=CONFIDENCE)
            if measure == "mean of all":
                primary[other] = t, [float(values.mean()) for values in found]
            counts = all(i.low > 0 or i.high < 0 for i in (drawn, t))
            print(
                f"| {LABELS[other]} | {measure} | {t.estimate:+.3f} | "
                f"[{drawn.low:+.3f}, {drawn.high:+.3f}] | [{t.low:+.3f}, {t.high:+.3f}] | "
                f"{'yes' if counts else 'no'} |"
            )
    return primary


def pairs(curves: Sequence[Curve], other: str) -> list[tuple[Curve, Curve]]:
    """GiGPO's run and the other's, seed by seed."""
    by_place = {(curve.algorithm, curve.seed): curve for curve in curves}
    seeds = sorted({curve.seed for curve in curves})
    return [(by_place["gigpo", seed], by_place[other, seed]) for seed in seeds]


def mean_difference(gigpo: Curve, other: Curve, training_steps: Sequence[int]) -> FloatArray:
    """GiGPO's success less the other's on each layout, over some validations."""
    each = [paired_differences(other.success[n], gigpo.success[n]) for n in training_steps]
    return np.stack(each).mean(axis=0)


def print_audits(runs: Sequence[Finished]) -> None:
    """Audit every run, whole."""
    reports: list[AuditReport] = []
    for run in runs:
        with opened(run.store) as session:
            reports.append(audit_run(session, run.run_id))
    print(
        f"\naudit: {len(reports)} runs, {sum(r.num_steps for r in reports):,} trained steps, "
        f"{sum(rule.num_checked for r in reports for rule in r.rules):,} checks, "
        f"{sum(r.num_findings for r in reports)} findings"
    )


if __name__ == "__main__":
    main()
