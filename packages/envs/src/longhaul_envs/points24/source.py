"""Points24 as a source: described and listed without an instance of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.points24 import tasks as task_list
from longhaul_envs.points24.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """Points24 under `options`, those of `Points24Options`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(
        task_list.Points24Options, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="write a formula of four cards that makes 24",
        prompt=prompt_for(chosen),
        actions="the value of a card, `+`, `-`, `*`, `/`, `(`, `)` or `=`",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.points24",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
