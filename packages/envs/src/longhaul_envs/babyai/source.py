"""BabyAI as a source: described and listed without an instance of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.babyai import tasks as task_list
from longhaul_envs.babyai.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """BabyAI under `options`, those of `BabyAIOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    levels = options.get("levels")
    if isinstance(levels, str):  # as the class takes it
        options = {**options, "levels": [levels]}
    chosen = options_from(task_list.BabyAIOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="instructions in grid worlds seen in part, as text",
        prompt=prompt_for(chosen.actions),
        actions="one of the admissible actions, such as `go to a red ball`",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.babyai",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
