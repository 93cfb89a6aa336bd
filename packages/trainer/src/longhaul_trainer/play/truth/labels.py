"""Labels of stored steps as credit: a person's, or a judge's, where they are numbers."""

from collections import defaultdict
from math import isfinite

from sqlalchemy.orm import Session

from longhaul_core.store import queries
from longhaul_trainer.play.truth.selection import Place, Selection

__all__ = ["label_credit"]


def label_credit(session: Session, selection: Selection) -> dict[str, dict[Place, float]]:
    """Credit of measured steps by their labels whose value is a finite number.

    Returns:
        One credit for each name and author of such labels, in alphabetical order.
    """
    measured = {(step.episode_id, step.step_index) for step in selection.steps}
    found: defaultdict[str, dict[Place, float]] = defaultdict(dict)
    labels = queries.labels_of(session, episode_ids=selection.episode_ids)
    for episode_id, of_episode in labels.items():
        for label in of_episode:
            if label.step_index is None or (episode_id, label.step_index) not in measured:
                continue
            try:
                value = float(label.value)
            except ValueError:
                continue
            if isfinite(value):
                credit = found[f"*label {label.name} by {label.author}*"]
                credit[episode_id, label.step_index] = value
    return dict(sorted(found.items()))
