"""Tests for `longhaul_trainer.verl.modes`: a dead engine, and demonstrations beside the play."""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from longhaul_core.errors import LonghaulError
from longhaul_trainer.config import RunConfig
from trainer.verl.local_ray import ray_here, wait_for
from trainer.verl.pythons import Pythons
from trainer.verl.test_settings import settings_of
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

AHEAD = {"prefetch_batches": 1, "max_staleness": 1}
TURNS: dict[str, dict[str, object]] = {
    "sync": {},
    "colocate_async": {"trainer": AHEAD | {"mode": "colocate_async"}},
    "separate_async": {
        "trainer": AHEAD | {"mode": "separate_async"},
        "resources": {"num_engine_workers": 1},
    },
}


@ray.remote(num_cpus=0)
class Engine:
    """Answers as vLLM's server does."""

    def clear_kv_cache(self) -> None:
        """Done."""


@pytest.fixture(scope="module", autouse=True)
def _ray(cpu_run: None, pythons: Pythons) -> Generator[None]:
    with ray_here(python=pythons.engine):
        yield


def run_of(mode: str) -> RunConfig:
    return RunConfig.model_validate(
        {"num_training_steps": 2, "tasks_per_training_step": 2} | TURNS[mode]
    )


def trainer_on_gpus(mode: str, engine: object) -> Any:  # noqa: ANN401
    """A trainer with the settings of GPUs, before it has workers, and one engine."""
    from longhaul_trainer.verl.modes import TRAINERS

    made: Any = TRAINERS[mode].__new__(TRAINERS[mode])
    made.config = settings_of(run_of(mode), device="gpu")
    made.global_steps = 2
    manager = "standalone_server_manager" if mode == "separate_async" else "llm_server_manager"
    setattr(made, manager, SimpleNamespace(server_handles=[engine]))
    return made


def has_died(engine: Any) -> bool:  # noqa: ANN401
    """Ray kills an actor some time after it was asked to."""
    try:
        ray.get(engine.clear_kv_cache.remote())
    except RayActorError:
        return True
    return False


@pytest.mark.parametrize("mode", TURNS)
def test_on_gpus_a_dead_engine_is_noticed_where_engines_do_not_sleep(mode: str) -> None:
    """Elsewhere they do while the learner has the cards, and cannot be asked."""
    engine: Any = Engine.remote()
    trainer = trainer_on_gpus(mode, engine)
    trainer._check_engines()
    ray.kill(engine)
    wait_for(lambda: has_died(engine))

    if mode == "separate_async":
        with pytest.raises(LonghaulError, match="rollout engine died in training step 2"):
            trainer._check_engines()
    else:
        trainer._check_engines()


@pytest.mark.parametrize("mode", TURNS)
def test_demonstrations_beside_have_logprobs_of_the_weights_before_the_update(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each mode by the learner itself: verl's `separate_async` would save weights."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    computed: list[str] = []

    def reads_none(model: str) -> bool:
        return False

    def compute(self: object, batch: str, metrics: dict[str, object]) -> str:
        computed.append(batch)
        metrics["training/rollout_probs_diff_mean"] = batch
        return f"{batch} with logprobs"

    monkeypatch.setattr(PPOTrainer, "_compute_old_log_prob", compute)
    monkeypatch.setattr("longhaul_trainer.verl.trainer.reads_pictures", reads_none)
    trainer = trainer_on_gpus(mode, engine=None)
    trainer._run = run_of(mode)
    trainer._beside = "demonstrations"
    metrics: dict[str, object] = {}

    assert trainer._compute_old_log_prob("played", metrics) == "played with logprobs"
    assert trainer._beside == "demonstrations with logprobs"
    assert computed == ["played", "demonstrations"]
    assert metrics == {"training/rollout_probs_diff_mean": "played"}, "nobody sampled the others"
