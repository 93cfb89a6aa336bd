"""AppWorld as a source: described without its package or its data."""

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_envs.appworld import tasks as task_list
from longhaul_envs.appworld.prompt import PROMPT
from longhaul_envs.packaged import packaged_source

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.AppWorldOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="do a person's task in their apps by writing Python",
        prompt=PROMPT,
        actions="Python code",
        # its clock and its draws are fixed, but code has a deadline in seconds
        determinism=Determinism.FIRST_OBSERVATION,
    ),
)
