"""TextWorld as a source: described without building a game."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.textworld import tasks as task_list
from longhaul_envs.textworld.prompt import PROMPT

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.TextWorldOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="text adventures made of a seed: cooking, coins, treasure, errands",
        prompt=PROMPT,
        actions="one of the admissible actions, such as `open fridge`",
        episodes_per_process=4,
    ),
    needs=(("textworld", "textworld"),),
)
