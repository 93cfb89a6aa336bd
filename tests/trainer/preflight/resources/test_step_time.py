"""Tests for `longhaul_trainer.preflight.resources.step_time`."""

import pytest

from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight.resources.step_time import (
    PASS_SECONDS,
    SPEEDS,
    TYPICAL_LENGTH,
    TYPICAL_STEPS,
    USED_BYTES,
    USED_FLOPS,
    StepTime,
    attended_tokens,
    known_gpu,
    operations_of_a_token,
    passes_of_an_update,
    step_time,
    tokens_of,
)
from longhaul_trainer.verl.composed import compose
from trainer.preflight.resources.runs import MIB, ROUND, a_run

ROLLOUT = {
    "group_size": 8,
    "horizon": 50,
    "max_prompt_tokens": 2000,
    "max_reply_tokens": 500,
    "concurrent_episodes": 128,
}
SECTIONS: dict[str, object] = {
    "tasks_per_training_step": 16,
    "rollout": ROLLOUT,
    "environment": {"num_workers": 128},
    "engine": {"max_sequences": 128},
    "optimizer": {"micro_batch_tokens": 8192},
}


def time_of(run: RunConfig, gpu: str | None = None) -> StepTime:
    return step_time(run, compose(run, "gpu"), ROUND, None, gpu=gpu)


def test_tokens_are_episodes_times_steps_times_lengths() -> None:
    tokens = tokens_of(a_run(**SECTIONS), steps=1.0, length=1.0)

    assert tokens.read == 16 * 8 * 50 * 2000
    assert tokens.written == 16 * 8 * 50 * 500
    assert tokens.learned == 16 * 8 * 50 * 2500


def test_full_histories_are_read_once_and_merged_rows_learned_once() -> None:
    run = a_run(
        **SECTIONS | {"memory": {"kind": "full"}, "optimizer": {"rows": "merged"}},
    )

    tokens = tokens_of(run, steps=1.0, length=1.0)

    assert tokens.read == 16 * 8 * 2000
    assert tokens.written == 16 * 8 * 50 * 500
    assert tokens.learned == 16 * 8 * 2500


def test_an_episode_s_budget_of_tokens_bounds_its_calls() -> None:
    run = a_run(**SECTIONS | {"rollout": ROLLOUT | {"max_episode_tokens": 25_000}})

    assert tokens_of(run, steps=1.0, length=1.0).learned == 16 * 8 * 25_000


def test_learning_is_two_operations_a_parameter_a_token_and_a_pass() -> None:
    run = a_run(**SECTIONS, loss={"kl_coefficient": 0.1}, model={"gradient_checkpointing": True})
    composed = compose(run, "gpu")

    assert passes_of_an_update(composed) == 6  # old, reference, forward, twice backward, again
    of_a_token = operations_of_a_token(ROUND, attended_tokens=1250, passes=6)
    assert of_a_token == 6 * (2 * 1000 * MIB + 4 * 2 * 512 * 1250)
    expected = 16_000_000 * of_a_token / (989e12 * USED_FLOPS[1])
    assert time_of(run).learn_seconds[1] == pytest.approx(expected)


def test_sdpa_computes_all_pairs_of_a_micro_batch_and_flash_attention_those_of_a_row() -> None:
    name = "actor_rollout_ref.model.override_config.attn_implementation"
    sdpa, skips, torchs = (
        compose(a_run(**SECTIONS, verl={name: attention}), "gpu")
        for attention in ("sdpa", "flash_attention_2", "flash_attention_torch")
    )

    assert attended_tokens(sdpa, 2500) == 8192
    assert attended_tokens(skips, 2500) == attended_tokens(torchs, 2500) == 1250


def test_an_adapter_s_base_gets_no_gradient() -> None:
    assert passes_of_an_update(compose(a_run(model={"lora_rank": 8}), "gpu")) == 3
    assert passes_of_an_update(compose(a_run(), "gpu")) == 4


def test_playing_is_reading_prompts_and_a_pass_for_each_token_of_a_reply() -> None:
    time = time_of(a_run(**SECTIONS))

    reading = 12_800_000 * (2 * 1000 * MIB + 2 * 2 * 512 * 2000) / (989e12 * USED_FLOPS[1])
    cached = 128 * 2500 * 2 * 2 * 2 * 128
    one_pass = (2 * 1000 * MIB + cached) / (3.35e12 * USED_BYTES) + PASS_SECONDS
    assert time.play_seconds[1] == pytest.approx(reading + 50 * 500 * one_pass)


def test_the_range_begins_at_typical_episodes() -> None:
    time = time_of(a_run(**SECTIONS))

    assert time.learned_tokens == pytest.approx(
        (16_000_000 * TYPICAL_STEPS * TYPICAL_LENGTH, 16_000_000)
    )
    assert time.seconds[0] < time.seconds[1]
    assert time.seconds[0] == time.play_seconds[0] + time.learn_seconds[0]


def test_engines_of_their_own_play_while_the_learner_learns() -> None:
    apart = {
        "trainer": {"mode": "separate_async", "prefetch_batches": 1, "max_staleness": 1},
        "resources": {"num_workers": 2, "num_engine_workers": 6},
    }

    time = time_of(a_run(**SECTIONS, **apart))

    assert not time.in_turns
    assert time.seconds[1] == max(time.play_seconds[1], time.learn_seconds[1])


def test_refills_are_played_and_not_learned() -> None:
    once, refilled = (
        time_of(a_run(**SECTIONS, sampling=sampling))
        for sampling in ({}, {"dynamic": True, "max_refills": 2})
    )

    assert refilled.play_seconds[1] == pytest.approx(3 * once.play_seconds[1])
    assert refilled.learn_seconds == once.learn_seconds


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10G", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_gpu_is_known_by_the_driver_s_name(name: str, found: str) -> None:
    time = time_of(a_run(**SECTIONS), name)

    assert (time.gpu, time.assumed) == (found, False)


@pytest.mark.parametrize("name", [None, "Quadro of long ago"])
def test_without_a_gpu_that_is_known_one_is_assumed(name: str | None) -> None:
    time = time_of(a_run(**SECTIONS), name)

    assert (time.gpu, time.assumed) == ("H100", True)


def test_a_faster_gpu_takes_less_time() -> None:
    slow, fast = (time_of(a_run(**SECTIONS), name) for name in ("A100", "H100"))

    assert SPEEDS["A100"] < SPEEDS["H100"]
    assert fast.seconds[1] < slow.seconds[1]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A10G", "A10"),
        ("NVIDIA L40", "L40"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA RTX A1000", None),  # no A100
        ("NVIDIA L400", None),
    ],
)
def test_a_gpu_is_known_by_its_whole_number(name: str, known: str | None) -> None:
    assert known_gpu(name) == known
