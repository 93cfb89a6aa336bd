"""WebArena as a source: described and listed without an instance of it, and without a browser."""

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.webarena import tasks as task_list
from longhaul_envs.webarena.prompt import ACTIONS, PROMPT

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.WebArenaOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="tasks on whole web sites that you host, in a real browser",
        prompt=PROMPT,
        actions=ACTIONS,
        episodes_per_process=1,
        determinism=Determinism.NONE,
    ),
    needs=(("playwright", "web"),),
)
