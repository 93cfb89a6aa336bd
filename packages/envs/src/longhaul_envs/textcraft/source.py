"""TextCraft as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.textcraft import tasks as task_list
from longhaul_envs.textcraft.prompt import PROMPT

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.TextCraftOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="craft a goal item out of raw materials and crafted parts",
        prompt=PROMPT,
        actions="`get N ITEM`, `craft N ITEM using N ITEM, N ITEM` or `inventory`",
        episodes_per_process=16,
    ),
)
