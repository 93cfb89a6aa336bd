"""Blackjack as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.blackjack import tasks as task_list
from longhaul_envs.blackjack.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.BlackjackOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="come nearer to 21 than the dealer",
        prompt=prompt_for(chosen.observation),
        actions="`hit` or `stand`",
        episodes_per_process=16,
        shows_pictures=chosen.observation == "image",
    ),
)
