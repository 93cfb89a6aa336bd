"""How vLLM finds out what a class of models can do."""

import os
from multiprocessing import spawn
from typing import Any

from vllm.model_executor.models import registry


def ask_a_fork() -> None:
    """Have vLLM ask a fork where the children of `multiprocessing` are forks (`cpu.zygote`).

    It asks a process of its own, once a class and machine, or at each start where it may not write
    into its cache. That process imports vLLM anew otherwise, a dozen seconds of a processor core.
    """
    models: Any = registry
    models._SUBPROCESS_COMMAND[0] = os.fsdecode(spawn.get_executable())
