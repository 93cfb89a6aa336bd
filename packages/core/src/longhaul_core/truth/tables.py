"""Judgements as a Markdown table: a row for each estimator, a column for each figure."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from longhaul_core.evaluation import Interval
from longhaul_core.truth.judging import (
    BoolArray,
    GroupAdvantages,
    Judgement,
    score_against_truth,
    shuffled,
)

__all__ = [
    "COLUMNS",
    "Figures",
    "figures_by_chance",
    "figures_of",
    "range_of",
    "shown",
    "table_of",
]

COLUMNS: Mapping[str, Callable[[Judgement], Interval | None]] = {
    "sign": lambda judged: judged.sign_agreement,
    "sign by chance": lambda judged: judged.sign_by_chance,
    "ρ episode": lambda judged: judged.spearman_in_episode,
    "τ episode": lambda judged: judged.kendall_in_episode,
    "ρ group": lambda judged: judged.spearman_in_group,
    "τ group": lambda judged: judged.kendall_in_group,
    "decisive recall": lambda judged: judged.decisive_recall,
    "slope": lambda judged: judged.calibration_slope,
    "no credit": lambda judged: judged.share_without_credit,
    "effective": lambda judged: judged.effective_share,
    "episodes ordered": lambda judged: judged.share_of_episodes_ordered,
}

Figures = dict[str, Interval | None]
"""By column."""


def figures_of(judged: Judgement) -> Figures:
    """With their intervals over groups."""
    return {column: figure(judged) for column, figure in COLUMNS.items()}


def figures_by_chance(
    truth: Sequence[GroupAdvantages],
    *,
    num_shuffles: int,
    effects: Sequence[Sequence[BoolArray]] | None = None,
) -> Figures:
    """Of the shuffled truth: the mean over shuffles, and the range that holds 95 % of them.

    Args:
        truth: As `score_against_truth` has it.
        num_shuffles: At least 1; their seeds are 0, 1, …
        effects: As `score_against_truth` has them.
    """
    of_each = [
        figures_of(
            score_against_truth(
                shuffled(truth, seed=seed), truth, effects=effects, num_resamples=100
            )
        )
        for seed in range(num_shuffles)
    ]
    return {column: range_of([figures[column] for figures in of_each]) for column in COLUMNS}


def range_of(figures: Sequence[Interval | None]) -> Interval | None:
    """The mean of what is defined, and the range that holds 95 % of it; None of nothing."""
    estimates = [one.estimate for one in figures if one is not None]
    if not estimates:
        return None
    low, high = np.quantile(estimates, [0.025, 0.975]).tolist()
    return Interval(float(np.mean(estimates)), low, high, 0.95, len(estimates))


def table_of(rows: Mapping[str, Figures]) -> str:
    """As Markdown; all rows have the columns of the first."""
    columns = list(next(iter(rows.values())))
    lines = [f"| estimator | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, figures in rows.items():
        cells = [
            shown(figure, digits=3 if column == "slope" else 2)
            for column, figure in figures.items()
        ]
        assert list(figures) == columns
        lines.append(f"| {name.replace('|', '/')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(figure: Interval | None, *, digits: int = 2) -> str:
    """With its interval or range of 95 %; a dash where none is defined."""
    if figure is None:
        return "–"
    low, estimate, high = (f"{x:z.{digits}f}" for x in (figure.low, figure.estimate, figure.high))
    return f"{estimate} [{low}, {high}]"
