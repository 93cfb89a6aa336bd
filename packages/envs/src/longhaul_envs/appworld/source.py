"""AppWorld as a source: described without its package or its data."""

from collections.abc import Mapping

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.appworld import tasks as task_list
from longhaul_envs.appworld.prompt import PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """AppWorld under `options`, those of `AppWorldOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(
        task_list.AppWorldOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="do a person's task in their apps by writing Python",
        prompt=PROMPT,
        actions="Python code",
        # its clock and its draws are fixed, but code has a deadline in seconds
        determinism=Determinism.FIRST_OBSERVATION,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.appworld",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
