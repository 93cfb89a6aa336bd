"""What breaks in the midst of a real run ends its own episode, or the run by name.

The run's engine keeps old weights once, which the agreement check sees, and then dies.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from training.faulty_world import ID, KINDS
from training.launching import (
    SMOKE,
    Launched,
    finish,
    in_world,
    path_with_tests,
    processes_in,
    recorded,
    trainer,
    wait_until,
)
from training.test_smoke_run import LOGPROB_BOUND
from training.variety import assert_advantages_vary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CANCELLED, RUN_FAILED, MACHINE = 130, 1, 3
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
    'environment.import_modules=["training.faulty_world"]',
    "environment.step_deadline_seconds=2",
    "rollout.max_retries=1",
    "rollout.policy_deadline_seconds=20",
    "tasks_per_training_step=8",  # all of them
    "num_training_steps=40",
    "optimizer.warmup_training_steps=0",
    "validation.before=false",
    "validation.every=0",
    "checkpoint.every=40",
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Another `trainer` tries to go on with it; after three training steps the engine is killed."""
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        process = trainer(folder, "train", *in_world(ID), *OPTIONS, program=("-c", PROGRAM))
    runs = folder / "runs"
    wait_until(process, lambda: any(runs.glob("*/run.lock")) and any(runs.glob("*/logs/*")))
    (run_folder,) = runs.iterdir()
    busy = subprocess.run(
        [str(Path(sys.executable).with_name("trainer")), "resume", run_folder.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    trained = "SELECT count(*) FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    wait_until(process, lambda: recorded(folder, trained) >= 3)
    engines = [pid for pid, command in processes_in(folder).items() if "EngineCore" in command]
    assert engines
    for engine in engines:
        os.kill(engine, signal.SIGKILL)
    ended = finish(process, folder)
    assert busy.returncode == MACHINE
    assert f"process {ended.value('SELECT pid FROM attempts')}" in busy.stderr.replace("\n", " ")
    return ended


def test_broken_environments_end_their_own_episodes(ended: Launched) -> None:
    causes = ended.query(
        "SELECT DISTINCT t.task_id, f.cause FROM failures f JOIN episodes e ON e.id = f.episode_id "
        "JOIN tasks t ON t.hash = e.task_hash WHERE f.cause NOT LIKE 'policy%'"
    )
    by_kind = {str(task).split("/")[-1]: cause for task, cause in causes}
    assert by_kind == {
        "raises in reset": "environment_error",
        "raises in step": "environment_error",
        "never returns": "environment_timeout",
    }
    assert set(by_kind) == set(KINDS) - {"sound"}
    retries = ended.query("SELECT DISTINCT retry FROM episodes WHERE failed ORDER BY 1")
    assert retries == [(0,), (1,)]
    assert ended.value("SELECT count(*) FROM episodes WHERE failed AND trained") == 0
    assert ended.value("SELECT count(*) FROM episodes WHERE failed AND episode_return = 0") == 0


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


def test_ctrl_c_while_starting_leaves_no_process(tmp_path: Path) -> None:
    process = trainer(tmp_path, "train", str(SMOKE), cold=True)
    wait_until(process, lambda: recorded(tmp_path, "SELECT count(*) FROM runs") > 0)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.kill(process.pid, signal.SIGINT)
    ended = finish(process, tmp_path)

    assert ended.returncode == CANCELLED, ended.output
    assert ended.query("SELECT status FROM runs") == [("cancelled",)]
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
