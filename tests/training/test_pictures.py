"""An adapter and a critic of a Qwen3.5, several pictures in a row, through the whole stack.

`test_program_pictures.py` trains all weights of a Qwen2.5-VL, `test_taught_to_see.py` a Qwen3-VL's.
"""

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from one_gpu import SMALL_PICTURES
from safetensors.torch import load
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.health import MIN_SIGHT
from longhaul_core.store import read_only_engine
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from training.critic import assert_a_critic_learned
from training.launching import SMOKE, Launched, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOGPROB_BOUND = 1e-3
"""Nats per token, mean: the sampler may not draw placeholders, which the learner allows."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_tiny_vision_model(folder, family="qwen3_5")
    return folder


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("pictures")
    alone = "critic.warmup_training_steps=1"  # the critic learns, and the policy does not yet
    launched = run(folder, "train", str(SMOKE), f"model.path={model}", *SMALL_PICTURES, alone)
    assert launched.returncode == 0, launched.output
    return launched


def test_sampler_and_learner_agree_on_replies_to_pictures(trained: Launched) -> None:
    rows = trained.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )

    assert len(rows) == 2
    assert all(0 < value < LOGPROB_BOUND for (value,) in rows), rows


def test_the_learner_is_seen_to_see(trained: Launched) -> None:
    rows = trained.query("SELECT value FROM metrics WHERE name = 'sight/logprob_change_mean'")

    assert len(rows) == 2
    assert all(value > 2 * MIN_SIGHT for (value,) in rows), rows


def test_prompts_hold_the_tokens_of_all_pictures_so_far(trained: Launched) -> None:
    grown = trained.query(
        "SELECT c.step_index, min(c.num_prompt_tokens) FROM calls c JOIN steps s "
        "USING (episode_id, step_index) WHERE s.trained GROUP BY 1 ORDER BY 1"
    )

    tokens = [number for _, number in grown]
    # 160 by 160 pixels are 5 by 5 tokens.
    assert all(later - before > 25 for before, later in pairwise(tokens))
    assert len(tokens) > 1


def test_the_policy_stands_still_while_its_critic_learns_alone(trained: Launched) -> None:
    norms = trained.query(
        "SELECT training_step, value FROM metrics WHERE name = 'actor/grad_norm' ORDER BY 1"
    )

    ((training_step, norm),) = norms
    assert training_step == 2
    assert norm > 0


def test_weights_that_read_pictures_go_on_from_a_stored_step_in_an_engine(
    trained: Launched, tmp_path: Path
) -> None:
    shutil.copy(trained.folder / "longhaul.db", tmp_path)
    ((episode, replayed),) = trained.query(
        "SELECT e.id, s.action FROM episodes e JOIN steps s ON s.episode_id = e.id "
        "WHERE e.phase = 'validation' AND s.step_index = 0 AND e.num_steps > 1 ORDER BY 1 LIMIT 1"
    )

    played = run(
        tmp_path,
        *("branch", episode, "--step", "1", "--continuations", "2"),
        *("--checkpoint", str(trained.run_folder), "runs_directory=runs"),
    )

    assert played.returncode == 0, played.output
    assert "2 of 2 continuations" in played.output
    actions = played.query(
        "SELECT DISTINCT s.action FROM steps s JOIN episodes e ON e.id = s.episode_id "
        "WHERE e.phase = 'branch' AND s.step_index = 0"
    )
    assert actions == [(replayed,)]
    sampled = played.query(
        "SELECT count(*) FROM calls c JOIN episodes e ON e.id = c.episode_id "
        "WHERE e.phase = 'branch' AND c.step_index > 0 AND c.num_action_tokens > 0"
    )
    assert sampled[0][0] >= 2


def test_the_audit_finds_nothing(trained: Launched) -> None:
    engine = read_only_engine(trained.folder / "longhaul.db")
    with Session(engine) as session:
        report = audit_run(session, trained.run_id)
    engine.dispose()

    assert [one_line(finding) for finding in report.findings] == []
    assert report.training_steps == (1, 2)


PARTS = ("visual.merger.", "language_model.layers.")
"""Of the weights: where pictures enter, and where text does."""


def test_the_adapter_is_of_the_part_that_reads_text(trained: Launched, model: Path) -> None:
    final = load((trained.run_folder / "model" / "model.safetensors").read_bytes())

    assert parts_that_moved(final, model) == {"language_model.layers."}


def test_the_critic_values_every_step_and_learns_to_see(trained: Launched, model: Path) -> None:
    assert_a_critic_learned(trained, num_training_steps=2, where="phase = 'train'")
    folder = trained.run_folder / "checkpoints" / "global_step_2" / "critic"
    critic: dict[str, Any] = torch.load(folder / "model_world_size_1_rank_0.pt", weights_only=False)

    final = {name: weight.to_local() for name, weight in critic.items()}
    assert final["lm_head.weight"].shape[0] == 1
    assert parts_that_moved(final, model) == {*PARTS}


def parts_that_moved(final: Mapping[str, torch.Tensor], model: Path) -> set[str]:
    start = load((model / "model.safetensors").read_bytes())
    moved = {
        name for name in start.keys() & final.keys() if not torch.equal(start[name], final[name])
    }
    return {part for part in PARTS if any(f"model.{part}" in name for name in moved)}
