"""What the page of a comparison shows."""

from typing import NamedTuple

from longhaul_core.store import queries
from longhaul_core.store.queries import Checkpoint, Comparison, PanelResult, RunSummary
from longhaul_viewer.data.store import reading

__all__ = ["Suggestion", "compare", "results", "runs", "suggestions"]

NEWEST = 8
"""Runs whose results are suggested."""


class Suggestion(NamedTuple):
    """Two results on one panel that a reader is likely to compare."""

    a: PanelResult
    b: PanelResult


def runs() -> list[RunSummary]:
    """Those that may have results, newest first."""
    with reading() as session:
        return queries.list_runs(session, limit=200)


def results(run_id: str) -> list[PanelResult]:
    """The results of a run on its panels, by training step."""
    with reading() as session:
        return queries.panel_results(session, run_id=run_id)


def suggestions() -> list[Suggestion]:
    """First and last result of each of the newest runs on its widest panel; their last in pairs."""
    lasts: list[PanelResult] = []
    found: list[Suggestion] = []
    with reading() as session:
        for run in queries.list_runs(session, limit=NEWEST):
            own = queries.panel_results(session, run_id=run.run_id)
            if not own:
                continue
            widest = max(own, key=lambda each: each.num_tasks).panel_hash
            of_panel = [each for each in own if each.panel_hash == widest]
            first, last = of_panel[0], of_panel[-1]
            if first.training_step < last.training_step:
                found.append(Suggestion(first, last))
            newer = [each for each in lasts if each.panel_hash == widest]
            found += [Suggestion(last, each) for each in newer[-1:]]
            lasts.append(last)
    return found


def compare(a: Checkpoint, b: Checkpoint) -> Comparison:
    """Two results task by task.

    Raises:
        LookupError: There is no such run or result.
        ComparisonError: They cannot be compared, with the reason.
    """
    with reading() as session:
        return queries.compare(session, a=a, b=b)
