"""Search as a source: described without an instance of it or an index."""

from collections.abc import Mapping

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.search import tasks as task_list
from longhaul_envs.search.prompt import prompt_for

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """Search under `options`, those of `SearchOptions`.

    Raises:
        ConfigError: If there is no such option, or a value is out of its range.
    """
    chosen = options_from(task_list.SearchOptions, options, environment_id=task_list.ENVIRONMENT_ID)
    # what an encoder computes may differ between machines in the last digits, and so may its order
    exact = chosen.retriever == "bm25"
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="answer a question by searching a collection of documents",
        prompt=prompt_for(chosen.max_answers),
        actions="`search[QUERY]` or `answer[TEXT]`",
        episodes_per_process=16,
        determinism=Determinism.EXACT if exact else Determinism.FIRST_OBSERVATION,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.search",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
