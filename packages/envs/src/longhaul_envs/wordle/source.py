"""Wordle as a source: described and listed without an instance of it."""

from longhaul_core.environment import EnvironmentDescription
from longhaul_envs.packaged import packaged_source
from longhaul_envs.wordle import tasks as task_list
from longhaul_envs.wordle.prompt import PROMPT

__all__ = ["source"]

source = packaged_source(
    task_list,
    task_list.WordleOptions,
    lambda chosen: EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary="find a word of five letters in six guesses",
        prompt=PROMPT,
        actions="an English word of five letters",
        episodes_per_process=16,
    ),
)
