"""NumberLine as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.number_line import tasks as task_list
from longhaul_envs.number_line.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.NumberLineOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="bring a number to a target by ones",
        prompt=prompt_for(chosen.observation),
        actions="`+` or `-`",
        episodes_per_process=16,
        shows_pictures=chosen.observation == "image",
    ),
)
