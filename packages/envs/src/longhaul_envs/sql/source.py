"""SQL as a source: described and listed without an instance of it."""

from collections.abc import Mapping

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.sql import tasks as task_list
from longhaul_envs.sql.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """SQL under `options`, those of `SQLOptions`.

    Raises:
        ConfigError: If there is no such option, a value is out of its range, or the folder that
            `bird` names has no BIRD-SQL.
    """
    chosen = options_from(task_list.SQLOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="answer a question about a database by a query, after looks at its data",
        prompt=prompt_for(chosen.form, chosen.schema),
        actions=(
            "`query SELECT ...` or `answer SELECT ...`"
            if chosen.form == "explore"
            else "a SELECT statement"
        ),
        episodes_per_process=4,
        # BIRD-SQL's own queries need functions of time, and those can read the clock
        determinism=Determinism.FIRST_OBSERVATION if chosen.bird else Determinism.EXACT,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.sql",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
