"""SQL as a source: described and listed without an instance of it."""

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.sql import tasks as task_list
from longhaul_envs.sql.prompt import prompt_for

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.SQLOptions,
    lambda chosen: EnvironmentDescription(
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
    ),
)
