"""WebArena as a source: described and listed without an instance of it, and without a browser."""

from collections.abc import Mapping

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.extras import required
from longhaul_envs.webarena import tasks as task_list
from longhaul_envs.webarena.prompt import ACTIONS, PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """WebArena under `options`, those of `WebArenaOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, no site or no file of
            tasks is named, or the extra `web` is not installed.
    """
    required("playwright", "web")
    chosen = options_from(
        task_list.WebArenaOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="tasks on whole web sites that you host, in a real browser",
        prompt=PROMPT,
        actions=ACTIONS,
        episodes_per_process=1,
        determinism=Determinism.NONE,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.webarena",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
