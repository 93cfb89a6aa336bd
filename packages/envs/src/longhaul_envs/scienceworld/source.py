"""ScienceWorld as a source: described and listed without Java's being started."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.scienceworld import tasks as task_list
from longhaul_envs.scienceworld.java import java_program
from longhaul_envs.scienceworld.prompt import PROMPT

__all__ = ["source"]


def _describe(chosen: task_list.ScienceWorldOptions) -> EnvironmentDescription:
    java_program()  # raises where there is no Java runtime
    return EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="science experiments in a simulated house",
        prompt=PROMPT,
        actions="a verb with objects as observations name them, such as `pick up thermometer`",
        episodes_per_process=8,
    )


source = packaged_source(
    task_list,
    task_list.ScienceWorldOptions,
    _describe,
    lists=("tasks", "simplifications"),
    needs=(("scienceworld", "scienceworld"),),
)
