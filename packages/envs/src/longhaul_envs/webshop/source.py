"""WebShop as a source: described without an instance of it or a shop."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.webshop import tasks as task_list
from longhaul_envs.webshop.prompt import PROMPT

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.WebShopOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="find and buy the product that an instruction asks for",
        prompt=PROMPT,
        actions="`search[WORDS]` or `click[TEXT]`",
        episodes_per_process=16,
    ),
)
