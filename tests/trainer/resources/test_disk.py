"""Tests for `longhaul_trainer.resources.disk`."""

from dataclasses import replace

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.resources.composed import Composed, compose
from longhaul_trainer.resources.disk import LOGS_BYTES, Disk, disk
from trainer.resources.runs import MIB, ROUND, a_run

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


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", 2), ("float32", 4)])
def test_an_adapter_s_checkpoint_has_the_model_once_and_the_adapter_with_its_moments(
    dtype: str, number: int
) -> None:
    run = a_run(model={"lora_rank": 1024, "dtype": dtype}, checkpoint=CHECKPOINT)
    composed, trained = compose(run, "gpu"), 1024 * 2048

    found = disk(run, composed, ROUND, None)

    assert composed.parameter_bytes == number
    assert found.checkpoint == number * ((BASE + trained) + trained + 2 * trained)
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


def a_long_run(**sections: object) -> RunConfig:
    """800 steps in each of 10 training steps, under a window memory of two exchanges."""
    rollout = {
        "group_size": 8,
        "horizon": 25,
        "max_prompt_tokens": 300,
        "max_reply_tokens": 20,
    }
    return a_run(
        **{"num_training_steps": 10, "tasks_per_training_step": 4, "rollout": rollout} | sections
    )


STEPS = 4 * 8 * 25


def test_a_step_stores_its_observation_and_its_reply_and_not_its_prompt() -> None:
    # Two exchanges and an observation fill a prompt: 100 tokens each.
    assert disk_of(a_long_run()).most_stored == 10 * STEPS * (1200 + 5.5 * 120 + 8 * 20)


def test_a_full_history_is_stored_once_in_an_episode() -> None:
    run = a_long_run(memory={"kind": "full"})

    # 320 tokens of an episode are 12.8 of each step, replies at most.
    assert disk_of(run).most_stored == 10 * STEPS * (1200 + 5.5 * 12.8 + 8 * 12.8)


def test_the_estimate_is_near_what_the_benchmark_of_the_store_measures() -> None:
    """`benchmarks/store_size.py`: 5.1 KB a step under a window of five, 5.0 under a full memory."""

    def bytes_of_a_step(memory: object, prompt: int, reply: int) -> float:
        rollout = {"horizon": 50, "max_prompt_tokens": prompt, "max_reply_tokens": reply}
        run = a_run(
            rollout={"group_size": 8} | rollout,
            memory=memory,
            optimizer={"micro_batch_tokens": prompt + reply},
        )
        steps = run.num_training_steps * run.tasks_per_training_step * 8 * 50
        return disk_of(run).most_stored / steps

    # A plan in every fifth step: 1.2 replies of 130 tokens a step.
    window = bytes_of_a_step({"kind": "window", "size": 5}, 1_900, 156)
    full = bytes_of_a_step({"kind": "full"}, 24_000, 138)

    assert window == pytest.approx(5_100, rel=0.05)
    assert full == pytest.approx(5_000, rel=0.05)


def test_what_retention_removes_takes_no_room() -> None:
    whole = disk_of(a_long_run()).most_stored / 10
    removed = STEPS * 600

    newest = a_long_run(retention={"full_training_steps": 3})
    sampled = a_long_run(retention={"full_training_steps": 3, "sampled_groups": 1})
    longer_than_the_run = a_long_run(retention={"full_training_steps": 30})

    assert disk_of(newest).most_stored == pytest.approx(3 * whole + 7 * removed)
    assert disk_of(sampled).most_stored == pytest.approx(
        3 * whole + 7 * (whole / 4 + removed * 3 / 4)
    )
    assert disk_of(longer_than_the_run).most_stored == pytest.approx(10 * whole)
