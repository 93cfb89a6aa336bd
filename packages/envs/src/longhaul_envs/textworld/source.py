"""TextWorld as a source: described without building a game."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.extras import required
from longhaul_envs.textworld import tasks as task_list
from longhaul_envs.textworld.prompt import PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """TextWorld under `options`, those of `TextWorldOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or the extra is
            missing.
    """
    chosen = options_from(
        task_list.TextWorldOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    required("textworld", "textworld")
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="text adventures made of a seed: cooking, coins, treasure, errands",
        prompt=PROMPT,
        actions="one of the admissible actions, such as `open fridge`",
        episodes_per_process=4,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.textworld",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
