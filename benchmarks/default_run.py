"""Does the default run learn? Trains it for several seeds and says what the panel shows.

Run: `python benchmarks/default_run.py STORE FOLDER [SEED …]`. Trains each seed that STORE does
not hold yet, then prints the scores before and after, the paired difference with its 95 %
interval, and the policies that training must beat; writes `learning.png` into FOLDER.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Plotly is untyped.

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from playwright.sync_api import sync_playwright
from plotly.colors import DEFAULT_PLOTLY_COLORS
from sqlalchemy.orm import Session

from longhaul_core.evaluation import cluster_t_difference, paired_difference
from longhaul_core.evaluation.paired import paired_differences
from longhaul_core.store import read_only_engine
from longhaul_core.store.queries import (
    EpisodeFilter,
    evaluations,
    get_run,
    list_episodes,
    list_runs,
    training_curve,
)
from longhaul_core.types import Split
from longhaul_envs.baselines import baseline_scores
from longhaul_envs.browser.chromium import chromium_executable
from longhaul_trainer.config import load_default_config
from longhaul_trainer.play.environments import environment_spec, task_panel

SEEDS = (0, 1, 2)


class SeedResult(NamedTuple):
    """One seed's run."""

    run_id: str
    seed: int
    before: dict[str, float]
    """Return by task, greedy, with the starting weights."""
    after: dict[str, float]
    panel: list[tuple[int, float]]
    """Training step and mean return on the panel, greedy."""
    training: list[tuple[int, float]]
    """Training step and mean return of the episodes it was trained on, sampled."""


def main() -> None:
    """Train what is missing, print, plot."""
    store, folder, *seeds = sys.argv[1:]
    wanted = [int(seed) for seed in seeds] or list(SEEDS)
    for seed in wanted:
        if seed not in {result.seed for result in results(store)}:
            train(store, seed)
    found = [result for result in results(store) if result.seed in wanted]
    baselines = must_beat()
    report(found, baselines)
    plot(found, baselines, Path(folder) / "learning.png")


def train(store: str, seed: int) -> None:
    """One default run of `seed` into `store`."""
    trainer = str(Path(sys.executable).with_name("trainer"))
    command = [trainer, "train", "default", f"seed={seed}", f"store={store}"]
    subprocess.run(command, check=True)


def results(store: str) -> list[SeedResult]:
    """The finished default runs of `store`, the newest of each seed."""
    if "://" not in store and not Path(store).exists():
        return []
    by_seed: dict[int, SeedResult] = {}
    with Session(read_only_engine(store)) as session:
        for run in list_runs(session, status="finished", kind="train"):
            config = json.loads(get_run(session, run_id=run.run_id).config_json)
            scores = evaluations(session, run_id=run.run_id)
            last = max(score.training_step for score in scores)
            by_seed.setdefault(
                config["seed"],
                SeedResult(
                    run_id=run.run_id,
                    seed=config["seed"],
                    before=returns(session, run.run_id, 0),
                    after=returns(session, run.run_id, last),
                    panel=[(score.training_step, score.mean_return) for score in scores],
                    training=[
                        (point.training_step, point.mean_return)
                        for point in training_curve(session, run_id=run.run_id, phase="train")
                        if point.mean_return is not None
                    ],
                ),
            )
    return sorted(by_seed.values(), key=lambda result: result.seed)


def returns(session: Session, run_id: str, training_step: int) -> dict[str, float]:
    """Return of each panel task at one validation; failed episodes have none."""
    where = EpisodeFilter(
        run_id=run_id,
        phase="validation",
        min_training_step=training_step,
        max_training_step=training_step,
        failed=False,
    )
    page = list_episodes(session, where=where, limit=10_000)
    return {row.task_id: row.episode_return for row in page.rows if row.episode_return is not None}


def must_beat() -> dict[str, float]:
    """Mean return of a random policy and of the best constant one on the run's own panel."""
    config = load_default_config()
    panel = task_panel(config, Split.VALIDATION)
    scores = baseline_scores(
        environment_spec(config.environment),
        panel.tasks,
        chosen_on=panel.tasks,  # which flatters the constant one: a floor to beat
        horizon=config.rollout.horizon,
    )
    best = max(
        (s for s in scores if s.policy not in ("random", "expert")), key=lambda s: s.mean_return
    )
    by_name = {score.policy: score.mean_return for score in scores}
    return {
        "random admissible action": by_name["random"],
        f"best constant policy ({best.policy})": best.mean_return,
        "expert": by_name["expert"],
    }


def report(found: Sequence[SeedResult], baselines: dict[str, float]) -> None:
    """Print scores, differences and what they must beat."""
    for name, value in baselines.items():
        print(f"{name}: {value:.3f}")
    for result in found:
        difference = paired_difference(result.before, result.after)
        print(
            f"seed {result.seed}: {mean(result.before):.3f} before, "
            f"{mean(result.after):.3f} after, "
            f"difference {difference.estimate:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        )
    if len(found) > 1:
        overall = cluster_t_difference([paired_differences(r.before, r.after) for r in found])
        print(
            f"over seeds: {overall.estimate:+.3f}, 95 % interval "
            f"[{overall.low:+.3f}, {overall.high:+.3f}] (t over {len(found)} seeds)"
        )


def mean(values: dict[str, float]) -> float:
    """Mean over tasks."""
    return float(np.mean(list(values.values())))


def plot(found: Sequence[SeedResult], baselines: dict[str, float], path: Path) -> None:
    """Mean return over training, on the panel and in training, and what it must beat."""
    figure = go.Figure()
    for result, color in zip(found, itertools.cycle(DEFAULT_PLOTLY_COLORS)):
        for kind, points, dash in (
            ("panel, greedy", result.panel, "solid"),
            ("training episodes, sampled", result.training, "dot"),
        ):
            steps, values = zip(*points, strict=True)
            figure.add_scatter(
                x=steps,
                y=values,
                mode="lines+markers",
                line={"color": color, "dash": dash, "width": 3 if dash == "solid" else 1.5},
                name=f"seed {result.seed}: {kind}",
            )
    for (name, value), dash in zip(baselines.items(), ("dot", "dash", "dashdot"), strict=True):
        figure.add_hline(y=value, line_dash=dash, line_color="gray", annotation_text=name)
    figure.update_layout(
        template="plotly_white",
        width=900,
        height=420,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        xaxis_title="training step",
        yaxis_title="mean return",
        yaxis_range=[0, 1.05],
    )
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = Path(scratch) / "learning.html"
        figure.write_html(page_file, include_plotlyjs="inline")
        browser = playwright.chromium.launch(
            executable_path=chromium_executable(), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 920, "height": 440})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    main()
