"""The agreement check fails when the engine keeps old weights: it is able to see a lost sync."""

import os
import subprocess
from pathlib import Path

import pytest

from longhaul_trainer.verl.cpu.preload import SHARED_ZYGOTE
from training.launching import SMOKE, TIME_LIMIT_SECONDS, Launched
from training.test_smoke_run import LOGPROB_BOUND
from training.variety import assert_advantages_vary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = """
import sys
from pathlib import Path
from longhaul_trainer.config import load_config
from longhaul_trainer.run_directory import RunDirectory
from longhaul_trainer.verl.launch import run_training

def make_trainer(settings, context):
    from longhaul_trainer.verl.modes import SyncTrainer

    class SkipsASync(SyncTrainer):
        def on_step_end(self):
            if self.global_steps != 1:
                super().on_step_end()

    return SkipsASync(settings, context)

config = load_config(Path(sys.argv[1]), sys.argv[2:]).with_absolute_paths(Path.cwd())
run = RunDirectory.create(config)
print(run_training(config, run, resume=False, make_trainer=make_trainer).status)
"""
OPTIONS = (
    "num_training_steps=3",
    "optimizer.warmup_training_steps=0",
    "validation.before=false",
    "validation.every=0",
    "checkpoint.every=3",
)


def test_a_skipped_sync_is_seen(tmp_path: Path) -> None:
    ended = subprocess.run(
        [os.environ[SHARED_ZYGOTE], "-c", PROGRAM, str(SMOKE), *OPTIONS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    launched = Launched(tmp_path, ended.returncode, ended.stdout)
    # Weights that rewards have moved, not a bonus for entropy.
    assert_advantages_vary(launched, training_steps=(1, 2, 3))
    rows = launched.query(
        "SELECT training_step, value FROM metrics "
        "WHERE name = 'agreement/logprob_difference_mean' ORDER BY training_step"
    )

    within = {step: value < LOGPROB_BOUND for step, value in rows}
    assert within == {1: True, 2: False, 3: True}, rows
