"""MiniWoB++ as a source: described and listed without an instance of it, and without a browser."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.extras import required
from longhaul_envs.miniwob import tasks as task_list
from longhaul_envs.miniwob.prompt import ACTIONS, PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """MiniWoB++ under `options`, those of `MiniWoBOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or the extra `web`
            is not installed.
    """
    required("playwright", "web")
    required("miniwob", "web")
    names = options.get("tasks")
    if isinstance(names, str):  # as the class takes it
        options = {**options, "tasks": [names]}
    chosen = options_from(
        task_list.MiniWoBOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="small tasks on web pages, in a real browser",
        prompt=PROMPT,
        actions=ACTIONS,
        episodes_per_process=4,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.miniwob",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
