"""A run that is killed again and again ends as one that nobody disturbed.

`LONGHAUL_KILLS` says how often it is ended, twice if it says nothing: by SIGTERM to each of its
processes, as Slurm and systemd send it, on which it keeps the training step that is over, by
SIGKILL while a checkpoint is being written, and then at moments drawn from `LONGHAUL_KILLS_SEED`.
`test_imitation.py` kills during a commit.
"""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from longhaul_trainer.models import prepare_model
from training.launching import (
    SMOKE_RUN,
    Launched,
    finish,
    kill_group,
    recorded,
    terminate_all,
    trainer,
    wait_for_the_dead,
    wait_until,
)
from training.variety import assert_advantages_vary, assert_rewards_vary

CANCELLED = 130
NUM_KILLS = int(os.environ.get("LONGHAUL_KILLS", "2"))
SEED = int(os.environ.get("LONGHAUL_KILLS_SEED", "0"))
LATEST_SECONDS = 60.0
"""A drawn moment lies within the first so many seconds of an attempt: start-up and training."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 + 240 * NUM_KILLS)]

Moment = Callable[[], bool]


def has_checkpoint(folder: Path, training_step: int) -> bool:
    return any(folder.glob(f"runs/*/checkpoints/global_step_{training_step}"))


def while_a_checkpoint_is_written(folder: Path) -> Moment:
    return lambda: any(folder.glob("runs/*/checkpoints/.writing-*"))


def after(seconds: float) -> Moment:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def moments(folder: Path) -> Iterator[Moment]:
    drawn = random.Random(SEED)
    yield lambda: recorded(folder, "SELECT count(*) FROM metrics WHERE training_step = 1") > 0
    written = while_a_checkpoint_is_written(folder)
    yield lambda: has_checkpoint(folder, 2) and written()
    while True:
        yield after(drawn.uniform(0.0, LATEST_SECONDS))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """A run after `NUM_KILLS` kills, each followed by a resume."""
    folder = tmp_path_factory.mktemp("killed")
    process = trainer(folder, *SMOKE_RUN, "checkpoint.every=2")
    for number, happened in zip(range(NUM_KILLS), moments(folder), strict=False):
        # A checkpoint that is there stays; what is written is so for some milliseconds.
        if not came(happened, process, folder, every=0.002 if number == 1 else 0.1):
            assert number >= 2, "a moment that always comes did not"
            break
        if number == 0:
            assert not has_checkpoint(folder, 1)
            terminate_all(process)
            assert finish(process, folder, limit_seconds=120).returncode == CANCELLED
        else:
            kill_group(process)
        wait_for_the_dead(folder)
        process = trainer(folder, "resume", "last")
    ended = finish(process, folder)
    assert ended.returncode == 0, ended.output
    return ended


def came(happened: Moment, process: "subprocess.Popen[str]", folder: Path, *, every: float) -> bool:
    """Wait for a moment; false if the run was done before a drawn one came."""
    wait_until(process, lambda: happened() or process.poll() is not None, every=every)
    assert process.poll() in {None, 0}, (folder / "output.txt").read_text(encoding="utf-8")
    return process.poll() is None


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(
            "SELECT phase, training_step, group_index, sample_index, task_id, horizon, trained, "
            "failed FROM episode_summary ORDER BY 1, 2, 3, 4",
            id="the task stream, the schedule, and each episode once",
        ),
        pytest.param(
            "SELECT training_step, name, value FROM metrics WHERE NOT rolled_back AND name IN "
            "('actor/optimizer_steps', 'actor/lr', 'episodes/count', 'validation/num_episodes') "
            "ORDER BY 1, 2",
            id="optimizer steps and learning rates",
        ),
        pytest.param(
            "SELECT training_step, panel, num_episodes FROM evaluations WHERE NOT rolled_back "
            "ORDER BY 1",
            id="validations",
        ),
        pytest.param(
            "SELECT version, training_step FROM policy_versions "
            "WHERE NOT rolled_back AND version > 0 ORDER BY 1",
            id="policy versions",
        ),
        pytest.param(
            "SELECT training_step, phase, group_index, group_size FROM groups "
            "WHERE NOT rolled_back ORDER BY 1, 2, 3",
            id="groups",
        ),
        pytest.param(
            "SELECT training_step, count(*), sum(trained) FROM step_detail "
            "WHERE phase = 'train' GROUP BY 1 ORDER BY 1",
            id="steps",
        ),
        pytest.param(
            "SELECT phase, training_step, group_index, sample_index, step_index, action, "
            "action_valid, reward, shaped_reward, return_to_go FROM step_detail "
            "ORDER BY 1, 2, 3, 4, 5",
            id="what was done and what it earned",
        ),
        pytest.param(
            "SELECT training_step, group_index, sample_index, step_index, advantage, "
            "episode_advantage, step_advantage, loss_weight "
            "FROM step_detail WHERE trained ORDER BY 1, 2, 3, 4",
            id="credit",
        ),
        pytest.param(
            "SELECT update_training_step, optimizer_step_index, group_index, sample_index, "
            "step_index, num_tokens, advantage_low, advantage_high, weight_low, weight_high "
            "FROM call_loss_inputs WHERE update_training_step IS NOT NULL "
            "ORDER BY 1, 2, 3, 4, 5",
            id="what the loss read",
        ),
        pytest.param("SELECT status, num_training_steps FROM runs", id="the run's end"),
    ],
)
def test_the_lineage_is_that_of_an_undisturbed_run(
    killed: Launched, smoke: Launched, question: str
) -> None:
    assert_rewards_vary(smoke)
    assert_advantages_vary(smoke, training_steps=(1, 2, 3, 4))
    expected: list[tuple[Any, ...]] = smoke.query(question)

    assert expected
    assert killed.query(question) == expected


def test_it_was_really_killed_and_went_on(killed: Launched) -> None:
    attempts = killed.query(
        "SELECT attempt, status, resumes_after_training_step FROM attempts ORDER BY attempt"
    )

    assert killed.query("SELECT status, message FROM attempts WHERE attempt = 0") == [
        ("cancelled", "SIGTERM")
    ]
    assert len(attempts) > min(NUM_KILLS, 2)
    assert attempts[-1][1] == "finished"
    came_from = [after_step for _, _, after_step in attempts[1:]]
    # A drawn moment may lie between the record of the end and the end of the process.
    after_the_end = [
        after_step
        for (_, status, _), after_step in zip(attempts, came_from, strict=False)
        if status == "finished"
    ]
    assert set(after_the_end) <= {4}
    assert came_from == sorted(came_from)
    assert came_from[0] == 1, "the training step that was over was kept, though none was due"
    if NUM_KILLS >= 2:
        assert came_from[1] >= 2, "the resumed attempt's own checkpoint is taken up"


def test_nothing_that_was_taken_back_counts_as_trained(killed: Launched) -> None:
    assert killed.value("SELECT count(*) FROM episodes WHERE rolled_back") > 0
    assert killed.value("SELECT count(*) FROM episodes WHERE rolled_back AND trained") == 0
    assert (
        killed.value("SELECT count(*) FROM episode_summary WHERE phase = 'train' AND NOT trained")
        == 0
    )


def test_the_store_is_whole(killed: Launched) -> None:
    assert killed.query("PRAGMA integrity_check") == [("ok",)]
    assert killed.query("PRAGMA foreign_key_check") == []


def test_the_final_weights_are_those_of_an_undisturbed_run(
    killed: Launched, smoke: Launched
) -> None:
    """Weights, AdamW's moments and the tokens that are sampled all went on where they stood."""
    start = load_file(prepare_model("tiny-moves") / "model.safetensors")
    found = load_file(killed.run_folder / "model" / "model.safetensors")
    expected = load_file(smoke.run_folder / "model" / "model.safetensors")

    moved = norm(expected[name] - start[name] for name in start)
    apart = norm(found[name] - expected[name] for name in start)
    assert moved > 0
    assert apart < 0.01 * moved
    assert not list(killed.run_folder.glob("checkpoints/.*"))


def norm(tensors: Iterable[npt.NDArray[np.float32]]) -> float:
    return float(np.sqrt(sum(np.square(tensor, dtype=np.float64).sum() for tensor in tensors)))
