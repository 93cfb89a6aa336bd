"""A whole run with two of each: ranks on gloo, engines, and agent loops, of which one is killed.

Prompts grow along an episode, so that rows differ in length. Each group is compared with a greedy
episode, in the mode in which playing and learning take turns.
"""

import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from longhaul_trainer.models import prepare_model
from training.greedy import assert_each_group_is_compared_with_its_greedy_episode
from training.launching import (
    Launched,
    audit,
    finish,
    in_world,
    path_with_tests,
    run,
    trainer,
    wait_for_the_dead,
    wait_until,
)
from training.test_smoke_run import LOGPROB_BOUND
from training.wordy_world import ID

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SETTINGS = (
    'environment.import_modules=["training.wordy_world"]',
    "resources.num_workers=2",
    "rollout.agent_loops=2",
    "num_training_steps=3",
    "validation.num_tasks=2",
    "validation.before=false",
    "validation.every=0",
    "rollout.group_size=4",
    'algorithm.name="remax"',
    'memory.kind="full"',
)
PADDING_TOKENS = 128
"""Of a row that verl fills an update up with."""


class Broken(NamedTuple):
    """A run of which one agent loop was killed, and that process's id."""

    launched: Launched
    killed: int


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    """An agent loop is killed when the first checkpoint is there."""
    folder: Path = tmp_path_factory.mktemp("two-workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        process = trainer(folder, "train", *in_world(ID), *SETTINGS)
        wait_until(process, lambda: any(folder.glob("runs/*/checkpoints/global_step_1")))
        (log,) = folder.glob("runs/*/logs/longhaul.log")
        found = re.findall(r"agent loop \d of 2 is process (\d+) on ", log.read_text("utf-8"))
        assert len(set(found)) == 2
        os.kill(killed := int(found[1]), signal.SIGKILL)
        ended = finish(process, folder, limit_seconds=120)
    wait_for_the_dead(folder)
    return Broken(ended, killed)


@pytest.fixture(scope="module")
def trained(broken: Broken) -> Launched:
    """The same run, resumed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path_with_tests())
        ended = run(broken.launched.folder, "resume", "last")
    assert ended.returncode == 0, ended.output
    return ended


def test_the_death_of_an_agent_loop_ends_the_run_by_name(broken: Broken) -> None:
    (status, message), *_ = broken.launched.query(
        "SELECT status, message FROM attempts ORDER BY attempt"
    )

    assert broken.launched.returncode == 1, broken.launched.output
    assert status == "failed"
    assert f"agent loop 1 of 2, process {broken.killed} on " in message
    assert "is gone, with the episodes that it played" in message


def test_each_optimizer_step_is_shared_out_to_both_ranks(trained: Launched) -> None:
    rows = trained.query(
        "SELECT training_step, optimizer_step_index, "
        "sum(rank = 0), sum(rank = 1), count(*) FROM call_loss_inputs "
        "WHERE trained GROUP BY 1, 2"
    )

    assert [row[:2] for row in rows] == [(step, part) for step in (1, 2, 3) for part in (0, 1)]
    assert all(abs(first - second) <= 1 for *_, first, second, _ in rows), rows
    assert any(number % 2 for *_, number in rows), "a padding row was never needed"


def test_both_ranks_read_nearly_equally_many_tokens(trained: Launched) -> None:
    rows = trained.query(
        "SELECT i.training_step, optimizer_step_index, rank, "
        "c.num_prompt_tokens + c.num_action_tokens "
        "FROM call_loss_inputs AS i JOIN calls AS c USING (episode_id, step_index, call_index) "
        "WHERE i.trained"
    )
    stored = trained.query(
        "SELECT training_step, value FROM metrics WHERE name = 'perf/rank_imbalance/actor' "
        "AND NOT rolled_back ORDER BY training_step"
    )

    lengths = [length for *_, length in rows]
    assert max(lengths) > 2 * min(lengths)
    found: list[tuple[int, float]] = []
    for step in (1, 2, 3):
        updates = [
            [[length for *place, length in rows if place == [step, part, rank]] for rank in (0, 1)]
            for part in (0, 1)
        ]
        for first, second in updates:  # the store has no padding rows; verl's are 128 tokens long
            shorter = min(first, second, key=len)
            shorter += [PADDING_TOKENS] * abs(len(first) - len(second))
        most = sum(max(map(sum, ranks)) for ranks in updates)
        total = sum(sum(map(sum, ranks)) for ranks in updates)
        found.append((step, 2 * most / total))
    assert stored == [(step, pytest.approx(imbalance)) for step, imbalance in found]
    assert all(imbalance <= 1.05 for _, imbalance in found), found


def test_both_ranks_left_their_part_of_each_checkpoint_and_the_run_went_on_from_one(
    trained: Launched,
) -> None:
    (resumed_after,) = trained.query(
        "SELECT resumes_after_training_step FROM attempts WHERE attempt = 1"
    )[0]
    steps = trained.query(
        "SELECT training_step, value FROM metrics WHERE name = 'actor/optimizer_steps' "
        "AND NOT rolled_back ORDER BY training_step"
    )

    assert resumed_after >= 1
    assert steps == [(1, 2.0), (2, 2.0), (3, 2.0)]
    for rank in (0, 1):
        for part in ("model", "optim", "extra_state"):
            name = f"checkpoints/global_step_3/actor/{part}_world_size_2_rank_{rank}.pt"
            assert (trained.run_folder / name).is_file(), name


def test_both_engines_sample_with_the_learners_weights(trained: Launched) -> None:
    rows = trained.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )

    assert len(rows) >= 3
    assert all(0 < value < LOGPROB_BOUND for (value,) in rows), rows


def test_each_group_is_compared_with_the_greedy_episode_that_was_played_beside_it(
    trained: Launched,
) -> None:
    assert_each_group_is_compared_with_its_greedy_episode(trained)
    played = trained.query(
        "SELECT training_step, count(*), sum(num_prompt_tokens) FROM episodes "
        "WHERE phase = 'baseline' AND NOT rolled_back GROUP BY 1 ORDER BY 1"
    )
    cost = trained.query(
        "SELECT training_step, 4, value FROM metrics "
        "WHERE name = 'baseline/prompt_tokens' AND NOT rolled_back ORDER BY 1"
    )
    assert [step for step, _, _ in played] == [1, 2, 3]
    assert played == cost


def test_the_final_weights_are_whole_and_have_moved(trained: Launched, tmp_path: Path) -> None:
    start = load_file(prepare_model("tiny", tmp_path) / "model.safetensors")

    final = load_file(trained.run_folder / "model" / "model.safetensors")

    assert {name: weight.shape for name, weight in final.items()} == {
        name: weight.shape for name, weight in start.items()
    }
    assert all(weight.isfinite().all() for weight in final.values())
    assert not torch.equal(
        final["model.layers.0.self_attn.q_proj.weight"],
        start["model.layers.0.self_attn.q_proj.weight"],
    )


def test_the_audit_finds_nothing(trained: Launched) -> None:
    audit(trained)
    assert trained.value("SELECT sum(num_findings) FROM audits") == 0
