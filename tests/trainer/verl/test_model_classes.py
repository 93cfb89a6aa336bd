"""Tests for `longhaul_trainer.verl.model_classes`, in a process that is a fork itself."""

import subprocess

from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

CODE = """
import os
from vllm.model_executor.models import registry
from longhaul_trainer.verl.model_classes import ask_a_fork

ask_a_fork()
print(os.getpid(), registry._run_in_subprocess(os.getppid))
"""


def test_vllm_asks_a_fork_about_a_model_where_its_children_are_forks(pythons: Pythons) -> None:
    ended = subprocess.run(
        [pythons.verl, "-c", CODE], capture_output=True, text=True, timeout=300, check=True
    )

    asked_by, child_of = ended.stdout.split()
    assert child_of != asked_by
