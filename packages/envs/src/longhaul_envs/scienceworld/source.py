"""ScienceWorld as a source: described and listed without Java's being started."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymSource
from longhaul_envs.packaged import packaged_source
from longhaul_envs.scienceworld import tasks as task_list
from longhaul_envs.scienceworld.java import java_program
from longhaul_envs.scienceworld.prompt import PROMPT

__all__ = ["source"]

_described = packaged_source(
    task_list,
    task_list.ScienceWorldOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="science experiments in a simulated house",
        prompt=PROMPT,
        actions="a verb with objects as observations name them, such as `pick up thermometer`",
        episodes_per_process=8,
    ),
    lists=("tasks", "simplifications"),
    needs=(("scienceworld", "scienceworld"),),
)


def source(options: Mapping[str, object]) -> GymSource:
    """ScienceWorld under `options`, those of `ScienceWorldOptions`.

    Raises:
        ConfigError: See `packaged_source`.
        MachineError: If there is no Java runtime.
    """
    found = _described(options)
    java_program()
    return found
