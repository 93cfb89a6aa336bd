"""WebShop as a source: described without an instance of it or a shop."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.webshop import tasks as task_list
from longhaul_envs.webshop.prompt import PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """WebShop under `options`, those of `WebShopOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(
        task_list.WebShopOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="find and buy the product that an instruction asks for",
        prompt=PROMPT,
        actions="`search[WORDS]` or `click[TEXT]`",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.webshop",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
