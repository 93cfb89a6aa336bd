"""Maze as a source: described and listed without an instance of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.maze import tasks as task_list
from longhaul_envs.maze.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """Maze under `options`, those of `MazeOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(task_list.MazeOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="find the way through a maze, seeing little of it",
        prompt=prompt_for(chosen.observation),
        actions="`move up`, `move down`, `move left` or `move right`",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.maze",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
