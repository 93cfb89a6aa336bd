"""Sokoban as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.sokoban import tasks as task_list
from longhaul_envs.sokoban.prompt import prompt_for

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.SokobanOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="push boxes onto targets; every level proved solvable",
        prompt=prompt_for(chosen.observation),
        actions="`up`, `down`, `left` or `right`",
        episodes_per_process=16,
        shows_pictures=chosen.observation == "image",
    ),
)
