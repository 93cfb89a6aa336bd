"""The steps of an episode, as the page of its group shows them."""

from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeDetail
from longhaul_viewer.components.charts import StripStep
from longhaul_viewer.data.store import reading

__all__ = ["episode", "strip"]


def episode(episode_id: str) -> EpisodeDetail:
    """One episode with its steps; `LookupError` if there is none."""
    with reading() as session:
        return queries.get_episode(session, episode_id=episode_id)


def strip(episode: EpisodeDetail) -> list[StripStep]:
    """What the overview shows of each step."""
    return [
        StripStep(
            step=step.step_index,
            reward=step.reward,
            advantage=step.advantage,
            action=step.action,
            valid=step.action_valid,
        )
        for step in episode.steps
    ]
