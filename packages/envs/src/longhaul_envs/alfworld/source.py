"""ALFWorld as a source: described and listed without an engine."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.alfworld import tasks as task_list
from longhaul_envs.alfworld.prompt import prompt_for
from longhaul_envs.extras import required

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """ALFWorld under `options`, those of `ALFWorldOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or the extra is
            missing.
    """
    chosen = options_from(
        task_list.ALFWorldOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    required("alfworld", "alfworld")
    required("fast_downward", "alfworld")
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="household errands in rooms that are seen one receptacle at a time",
        prompt=prompt_for(chosen.wording),
        actions="one of the admissible actions, such as `go to fridge 1`",
        episodes_per_process=4,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.alfworld",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
