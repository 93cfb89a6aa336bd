"""Tests for `longhaul_trainer.preflight.resources.disk`."""

from dataclasses import replace

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.disk import LOGS_BYTES, Disk, disk
from longhaul_trainer.verl.composed import Composed, compose
from trainer.preflight.resources.runs import MIB, ROUND, a_run

BASE = 1000 * MIB
CHECKPOINT = {"keep_last": 2, "keep_best": True}


def disk_of(run: RunConfig, composed: Composed | None = None) -> Disk:
    composed = composed or compose(run, "gpu")
    return disk(run, composed, ROUND, ROUND if composed.has_critic else None)


def saving(run: RunConfig, *contents: str) -> Disk:
    """What is written if verl is told to save that."""
    return disk_of(run, replace(compose(run, "gpu"), saved=frozenset(contents)))


def test_a_checkpoint_has_the_weights_twice_and_two_moments() -> None:
    whole = disk_of(a_run(checkpoint=CHECKPOINT))

    assert whole.checkpoint == 4 * 4 * BASE
    assert whole.num_checkpoints == 4
    assert whole.models == 4 * 2 * BASE
    assert whole.folder == 4 * whole.checkpoint + whole.models + LOGS_BYTES


def test_an_evaluation_writes_no_checkpoint_and_no_model() -> None:
    run = a_run(checkpoint=CHECKPOINT)

    assert disk_of(run, compose(run, "gpu", trains=False)).folder == LOGS_BYTES


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", 2), ("float32", 4)])
def test_an_adapter_s_checkpoint_has_it_and_the_model_once(dtype: str, number: int) -> None:
    run = a_run(model={"lora_rank": 1024, "dtype": dtype}, checkpoint=CHECKPOINT)
    composed, trained = compose(run, "gpu"), 1024 * 2048

    found = disk(run, composed, ROUND, None)

    assert composed.parameter_bytes == number
    # the adapter, its two moments, and a Hugging Face folder with both
    assert found.checkpoint == number * (trained + 2 * trained + BASE + trained)
    assert found.models == number * 2 * (BASE + trained)


def test_what_verl_is_not_told_to_save_takes_no_room() -> None:
    run = a_run()

    assert saving(run, "model", "optimizer").checkpoint == 4 * 3 * BASE
    assert saving(run, "model", "hf_model").checkpoint == 4 * 2 * BASE
    assert saving(run, "model", "extra").checkpoint == 4 * BASE
    adapter = a_run(model={"lora_rank": 1})
    alone = replace(compose(adapter, "gpu"), saved=frozenset({"model"}), saves_adapter_alone=True)
    assert disk_of(adapter, alone).checkpoint == 4 * 2048


def test_a_critic_s_checkpoint_has_its_weights_and_moments() -> None:
    with_critic = disk_of(a_run(algorithm={"name": "gae"}))

    assert with_critic.checkpoint - disk_of(a_run()).checkpoint == 4 * 3 * BASE


STORED: dict[str, object] = {
    "num_training_steps": 10,
    "tasks_per_training_step": 4,
    "rollout": {"group_size": 8, "horizon": 5, "max_prompt_tokens": 100, "max_reply_tokens": 20},
}
STEPS = 4 * 8 * 5


def test_the_store_grows_with_steps_and_replies_and_not_with_prompts() -> None:
    rollout = {"group_size": 8, "horizon": 5, "max_prompt_tokens": 900, "max_reply_tokens": 20}
    plans = a_run(**STORED, agent={"kind": "plan_then_act"})

    stored = disk_of(a_run(**STORED)).most_stored

    assert stored == 10 * STEPS * (3000 + 17 * 20)
    assert disk_of(a_run(**STORED | {"rollout": rollout})).most_stored == stored
    assert disk_of(plans).most_stored == 10 * STEPS * (3000 + 17 * 40)


def test_retention_leaves_little_of_older_training_steps() -> None:
    whole, removed = STEPS * (3000 + 17 * 20), STEPS * 600

    def stored(**retention: int) -> float:
        return disk_of(a_run(**STORED, retention=retention)).most_stored

    assert stored(full_training_steps=2) == 2 * whole + 8 * removed
    assert stored(full_training_steps=2, sampled_groups=1) == 4 * whole + 6 * removed
    assert stored(full_training_steps=2, sampled_groups=9) == stored(full_training_steps=20)
    assert stored(full_training_steps=20) == 10 * whole
