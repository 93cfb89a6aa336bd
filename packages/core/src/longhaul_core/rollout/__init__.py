"""Rollout: a policy meets environments, and every meeting leaves a record."""

from longhaul_core.rollout.agent import Agent
from longhaul_core.rollout.group import assemble_groups, group_specs
from longhaul_core.rollout.limits import EpisodeLimits
from longhaul_core.rollout.loop import EpisodeOutcome, run_episode
from longhaul_core.rollout.runner import EpisodeResult, EpisodeRunner
from longhaul_core.rollout.seeds import continuation_seed, episode_seed, retry_seed, step_seed
from longhaul_core.rollout.spec import EpisodeSpec

__all__ = [
    "Agent",
    "EpisodeLimits",
    "EpisodeOutcome",
    "EpisodeResult",
    "EpisodeRunner",
    "EpisodeSpec",
    "assemble_groups",
    "continuation_seed",
    "episode_seed",
    "group_specs",
    "retry_seed",
    "run_episode",
    "step_seed",
]
