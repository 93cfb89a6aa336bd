"""EZPoints as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.ez_points import tasks as task_list
from longhaul_envs.ez_points.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.EZPointsOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="write a formula of two cards that makes 12",
        prompt=prompt_for(chosen.observation),
        actions="the value of a card, `+`, `*` or `=`",
        episodes_per_process=16,
        shows_pictures=chosen.observation == "image",
    ),
)
