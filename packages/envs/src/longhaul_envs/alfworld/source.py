"""ALFWorld as a source: described and listed without an engine."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.alfworld import tasks as task_list
from longhaul_envs.alfworld.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.ALFWorldOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="household errands in rooms that are seen one receptacle at a time",
        prompt=prompt_for(chosen.wording),
        actions="one of the admissible actions, such as `go to fridge 1`",
        episodes_per_process=4,
    ),
    needs=(("alfworld", "alfworld"), ("fast_downward", "alfworld")),
)
