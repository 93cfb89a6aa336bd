"""A run of a Qwen3-VL that reads pictures, several in a row, through the whole stack and the audit.

`test_program_pictures.py` does so with a Qwen2.5-VL.
"""

from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from longhaul_core.audit import audit_run, one_line
from longhaul_core.health import MIN_SIGHT
from longhaul_core.store import read_only_engine
from longhaul_trainer.models.tiny_vision import write_tiny_vision_model
from training.launching import SMOKE, Launched, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOGPROB_BOUND = 1e-3
"""Nats per token, mean: the sampler may not draw placeholders, which the learner allows."""
OPTIONS = (
    'environment.options={size=5, min_pushes=1, step_penalty=0.01, observation="image"}',
    "num_training_steps=2",
    "tasks_per_training_step=4",
    "rollout.max_prompt_tokens=1024",
    'memory.kind="full"',
    'optimizer.rows="merged"',
    "optimizer.micro_batch_tokens=8192",
    "validation.num_tasks=2",
    "validation.test_num_tasks=2",
    "checkpoint.every=2",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_tiny_vision_model(folder, family="qwen3_vl")
    return folder


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("pictures")
    launched = run(folder, "train", str(SMOKE), f"model.path={model}", *OPTIONS)
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


def test_the_audit_finds_nothing(trained: Launched) -> None:
    engine = read_only_engine(trained.folder / "longhaul.db")
    with Session(engine) as session:
        report = audit_run(session, trained.run_id)
    engine.dispose()

    assert [one_line(finding) for finding in report.findings] == []
    assert report.training_steps == (1, 2)


def test_the_weights_that_read_pictures_moved(trained: Launched, model: Path) -> None:
    from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

    start = load_file(model / "model.safetensors")
    final = load_file(trained.run_folder / "model" / "model.safetensors")

    moved = {name for name, weight in start.items() if not (weight == final[name]).all()}
    for part in ("visual.merger.", "visual.deepstack_merger_list.", "language_model.layers."):
        assert any(name.startswith(f"model.{part}") for name in moved), part
