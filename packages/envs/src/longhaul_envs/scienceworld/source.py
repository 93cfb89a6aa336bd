"""ScienceWorld as a source: described and listed without Java's being started."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_envs.extras import required
from longhaul_envs.scienceworld import tasks as task_list
from longhaul_envs.scienceworld.java import java_program
from longhaul_envs.scienceworld.prompt import PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """ScienceWorld under `options`, those of `ScienceWorldOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or the extra is
            missing.
        MachineError: If there is no Java runtime.
    """
    chosen = task_list.options_of(options)
    required("scienceworld", "scienceworld")
    java_program()
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="science experiments in a simulated house",
        prompt=PROMPT,
        actions="a verb with objects as observations name them, such as `pick up thermometer`",
        episodes_per_process=8,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.scienceworld",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
