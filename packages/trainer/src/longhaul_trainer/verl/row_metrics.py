"""What a training step's rows cost the learner, and how much of it is trained.

Nothing here knows about verl.
"""

from __future__ import annotations

from longhaul_trainer.verl.credit import StepCredit, TrainedStep


def row_metrics(credit: StepCredit, *, num_rows: int) -> dict[str, float]:
    """Counts over the rows of the episodes that are trained.

    Args:
        credit: Of the training step, with an episode at least.
        num_rows: Rows of all its optimizer steps, those that only fill up counted.
    """
    rows = credit.steps_by_row()
    trained = sum(step.note.action_tokens for steps in rows.values() for step in steps)
    prompts = sum(steps[0].note.prompt_tokens for steps in rows.values())
    responses = sum(steps[-1].note.stop for steps in rows.values())
    return {
        "rows/count": len(rows),
        "rows/per_episode": len(rows) / len(credit.episodes),
        "rows/padding": num_rows - len(rows),
        "rows/longest": max(map(_num_tokens, rows.values())),
        "rows/prompt_tokens": prompts,
        "rows/gap_tokens": responses - trained,
        "rows/trained_tokens": trained,
    }


def _num_tokens(steps: list[TrainedStep]) -> int:
    return steps[0].note.prompt_tokens + steps[-1].note.stop
