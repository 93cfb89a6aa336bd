"""A low-rank adapter is trained, and the engine samples with it."""

from pathlib import Path

import pytest

from training.launching import SMOKE, run
from training.test_smoke_run import LOGPROB_BOUND

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_engine_samples_with_the_adapter_that_was_trained(tmp_path: Path) -> None:
    launched = run(
        tmp_path,
        "train",
        str(SMOKE),
        "model.lora_rank=4",
        "num_training_steps=2",
        "optimizer.learning_rate=0.1",
        "validation.before=false",
    )

    assert launched.returncode == 0, launched.output
    agreement = launched.query(
        "SELECT value FROM metrics WHERE name = 'agreement/logprob_difference_mean'"
    )
    assert len(agreement) == 2
    assert all(value < LOGPROB_BOUND for (value,) in agreement), agreement
    entropies = launched.query(
        "SELECT value FROM metrics WHERE name = 'actor/entropy' ORDER BY training_step"
    )
    assert entropies[0] != entropies[1], "the adapter changed nothing"
