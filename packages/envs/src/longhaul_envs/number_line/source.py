"""NumberLine as a source: described and listed without an instance of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.number_line import tasks as task_list
from longhaul_envs.number_line.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """NumberLine under `options`, those of `NumberLineOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(
        task_list.NumberLineOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="bring a number to a target by ones",
        prompt=prompt_for(chosen.observation),
        actions="`+` or `-`",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.number_line",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
