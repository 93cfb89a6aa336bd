"""Maze as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.maze import tasks as task_list
from longhaul_envs.maze.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.MazeOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="find the way through a maze, seeing little of it",
        prompt=prompt_for(chosen.observation),
        actions="`move up`, `move down`, `move left` or `move right`",
        episodes_per_process=16,
    ),
)
