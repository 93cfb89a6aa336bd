"""Points24 as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.points24 import tasks as task_list
from longhaul_envs.points24.prompt import prompt_for

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.Points24Options,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="write a formula of four cards that makes 24",
        prompt=prompt_for(chosen),
        actions="the value of a card, `+`, `-`, `*`, `/`, `(`, `)` or `=`",
        episodes_per_process=16,
        shows_pictures=chosen.observation == "image",
    ),
)
