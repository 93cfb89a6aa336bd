"""How many episodes a run's panels have, so that a score says of how many it is."""

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.store.models import PanelRow, RunRow

__all__ = ["PlannedEpisodes", "num_unplayed", "planned_episodes"]

PlannedEpisodes = Mapping[tuple[str, str, str], int]
"""Episodes of a panel by its run, its name and its split."""


def planned_episodes(session: Session, *, run_ids: Collection[str]) -> PlannedEpisodes:
    """The episodes of each panel of the runs; a run whose configuration does not say is absent."""
    rows = session.execute(
        select(
            PanelRow.run_id, PanelRow.name, PanelRow.split, PanelRow.num_tasks, RunRow.config_json
        )
        .join(RunRow, RunRow.id == PanelRow.run_id)
        .where(PanelRow.run_id.in_(run_ids))
    )
    return {
        (run_id, name, split): num_tasks * samples
        for run_id, name, split, num_tasks, config_json in rows
        if (samples := _samples_per_task(json.loads(config_json))) is not None
    }


def num_unplayed(
    planned: PlannedEpisodes, *, run_id: str, panel: str, split: str, num_episodes: int
) -> int | None:
    """Episodes of the panel that are in no score; None where nobody knows how many it has."""
    of_panel = planned.get((run_id, panel, split))
    return None if of_panel is None else max(0, of_panel - num_episodes)


def _samples_per_task(config: Mapping[str, Any]) -> int | None:
    validation = config.get("validation")
    if not isinstance(validation, Mapping):
        return None
    found = cast("Mapping[str, object]", validation).get("samples_per_task")
    return found if isinstance(found, int) else None
