"""Search as a source: described without an instance of it or an index."""

from longhaul_core.environment import Determinism, EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.search import tasks as task_list
from longhaul_envs.search.prompt import prompt_for

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.SearchOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="answer a question by searching a collection of documents",
        prompt=prompt_for(chosen.max_answers),
        actions="`search[QUERY]` or `answer[TEXT]`",
        episodes_per_process=16,
        # what an encoder computes may differ between machines in the last digits, and its order so
        determinism=(
            Determinism.EXACT if chosen.retriever == "bm25" else Determinism.FIRST_OBSERVATION
        ),
    ),
)
