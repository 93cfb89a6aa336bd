"""BabyAI as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.babyai import tasks as task_list
from longhaul_envs.babyai.prompt import prompt_for
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.BabyAIOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="instructions in grid worlds seen in part, as text",
        prompt=prompt_for(chosen.actions),
        actions="one of the admissible actions, such as `go to a red ball`",
        episodes_per_process=16,
    ),
    lists=("levels",),
)
