"""The benchmark of 1,024 episodes at once, with 16: it plays, credits and learns as it says."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from training.launching import FORKED_TRAINER

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scale.py"

pytestmark = pytest.mark.slow


def test_every_kind_of_process_is_measured_and_every_step_is_stored() -> None:
    size = {
        "episodes": 16,
        "steps": 2,
        "prompt-tokens": 300,
        "reply-tokens": 20,
        "speed": 1000,
        "learner-speed": 1e6,
    }
    options = [f"--{name}={value}" for name, value in size.items()]
    finished = subprocess.run(
        [os.environ[FORKED_TRAINER], BENCHMARK, *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "16 episodes at once, 2 steps, 32 steps of" in finished.stdout
    for measured in (
        *("agent loops", "environment workers", "storage units", "queue controller", "router"),
        *("store writer", "driver", "template and tokenizer", "sending by TransferQueue"),
        *("credit (GiGPO)", "advantages and weights as columns", "metrics of the batch (verl)"),
        *("store on disk", "learner (stand-in)", "engines (stand-in)"),
    ):
        assert re.search(rf"{re.escape(measured)}[^\n]*\d", finished.stdout), finished.stdout
