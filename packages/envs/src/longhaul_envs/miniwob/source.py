"""MiniWoB++ as a source: described and listed without an instance of it, and without a browser."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.miniwob import tasks as task_list
from longhaul_envs.miniwob.prompt import ACTIONS, PROMPT
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.MiniWoBOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="small tasks on web pages, in a real browser",
        prompt=PROMPT,
        actions=ACTIONS,
        episodes_per_process=4,
        shows_pictures=chosen.observation == "tree_and_image",
    ),
    lists=("tasks",),
    needs=(("playwright", "web"), ("miniwob", "web")),
)
