"""A run whose engine keeps old weights once, which the agreement check sees, and then dies."""

import os
import signal

import pytest

from training.launching import SMOKE, Launched, finish, processes_in, recorded, trainer, wait_until
from training.test_smoke_run import LOGPROB_BOUND
from training.variety import assert_advantages_vary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUN_FAILED = 1
PROGRAM = """
from functools import partial
from longhaul_trainer.cli.main import main
from longhaul_trainer.verl import launch

def make_trainer(settings, context):
    from longhaul_trainer.verl.modes import SyncTrainer

    class SkipsASync(SyncTrainer):
        def on_step_end(self):
            if self.global_steps != 1:
                super().on_step_end()

    return SkipsASync(settings, context)

launch.run_training = partial(launch.run_training, make_trainer=make_trainer)
main()
"""
OPTIONS = (
    "num_training_steps=40",
    "optimizer.warmup_training_steps=0",
    "validation.before=false",
    "validation.every=0",
    "checkpoint.every=40",
    "rollout.policy_deadline_seconds=20",
)
TRAINED = "SELECT count(*) FROM metrics WHERE name = 'agreement/logprob_difference_mean'"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """The sync after the first training step is skipped; after three the engine is killed."""
    folder = tmp_path_factory.mktemp("skipped-sync")
    process = trainer(folder, "train", str(SMOKE), *OPTIONS, program=("-c", PROGRAM))
    wait_until(process, lambda: recorded(folder, TRAINED) >= 3)
    engines = [pid for pid, command in processes_in(folder).items() if "EngineCore" in command]
    assert engines
    for engine in engines:
        os.kill(engine, signal.SIGKILL)
    return finish(process, folder)


def test_a_skipped_sync_is_seen(ended: Launched) -> None:
    # Weights that rewards have moved, not a bonus for entropy.
    assert_advantages_vary(ended, training_steps=(1, 2, 3))
    rows = ended.query(
        "SELECT training_step, value FROM metrics WHERE training_step <= 3 "
        "AND name = 'agreement/logprob_difference_mean' ORDER BY training_step"
    )

    within = {step: value < LOGPROB_BOUND for step, value in rows}
    assert within == {1: True, 2: False, 3: True}, rows


def test_a_dead_engine_ends_the_run_by_name(ended: Launched) -> None:
    assert ended.returncode == RUN_FAILED, ended.output
    assert ended.query("SELECT status FROM runs") == [("failed",)]
    assert str(next(ended.folder.glob("runs/*/logs"))) in ended.output
    assert ended.value("SELECT count(*) FROM failures WHERE cause LIKE 'policy%'") > 0
