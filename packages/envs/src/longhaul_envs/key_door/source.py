"""KeyDoor as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.key_door import tasks as task_list
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.KeyDoorOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="take a key, unlock a door, reach a goal: some 20 steps, paid at the end alone",
        prompt=task_list.PROMPT,
        actions="`north`, `south`, `west`, `east`, `take` or `unlock`",
        episodes_per_process=16,
    ),
)
