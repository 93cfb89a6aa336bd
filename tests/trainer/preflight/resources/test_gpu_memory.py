"""Tests for `longhaul_trainer.preflight.resources.gpu_memory`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longhaul_trainer.preflight.resources.gpu_memory import (
    PROCESS_BYTES,
    GpuMemory,
    activation_bytes_of_a_token,
    gpu_memory,
)
from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.verl.composed import Composed
from trainer.preflight.resources.runs import GIB, MIB, ROUND, SEEING, composed, flash


@pytest.fixture(scope="module")
def one_gpu() -> Composed:
    return composed("gpu")


def memory_of(settings: Composed, critic: ModelSize | None = None) -> GpuMemory:
    return gpu_memory(settings, ROUND, critic, longest_call=128)


def test_a_gpu_s_memory_is_the_sum_that_the_docstrings_say() -> None:
    settings = composed(
        "gpu",
        model={"gradient_checkpointing": True},
        optimizer={"micro_batch_tokens": 131072},
        loss={"entropy_coefficient": 0.1},
        engine={"gpu_memory_utilization": 0.5},
        resources={"num_workers": 2},
    )

    memory = memory_of(flash(settings))

    # 1000 MiB of parameters in float32, shared by two GPUs
    assert memory.weights == memory.gradients == 2000 * MIB
    assert memory.moments == 4000 * MIB
    assert memory.critic == 0
    # two layers, of 1000 MiB less the embedding's 0.5 each half, and the embedding; gradients too
    assert memory.gathered == 2 * 2 * (2 * (1000 * MIB - 512 * 1024) / 2 + 512 * 1024)
    # each layer's input, and one whole layer: 2 x 512 + 11 x 512 + 3 x 128 + 4 x 1024 numbers
    assert memory.activations == 131072 * 2 * (1024 + 5632 + 384 + 4096)
    # four bfloat16 numbers for each token and entry: logits, their gradient, and the entropy's
    assert memory.logits == 4 * 2 * 131072 * 1024
    assert memory.engine_weights == 2000 * MIB
    assert memory.engine_cache == 2 * 2 * 2 * 128 * 128
    assert memory.resident == 6000 * MIB + PROCESS_BYTES
    backward = memory.gathered + memory.activations + memory.logits
    assert memory.learning == memory.resident + 2000 * MIB + backward


def test_all_of_a_micro_batch_may_be_pictures() -> None:
    for checkpointing, patch in ((True, 3 * 64 + 14 * 64 + 4 * 128), (False, 3 * (14 * 64 + 512))):
        settings = composed(
            "gpu",
            model={"gradient_checkpointing": checkpointing},
            optimizer={"micro_batch_tokens": 4096},
        )
        seen = gpu_memory(settings, SEEING, None, longest_call=128)

        # four patches a token, in bfloat16
        assert seen.activations - memory_of(settings).activations == 4096 * 4 * 2 * patch


def test_an_evaluation_holds_weights_and_the_engine() -> None:
    settings = composed("gpu", resources={"num_workers": 2})
    trained = memory_of(settings)

    memory = memory_of(replace(settings, trains=False))

    assert memory.weights == 2000 * MIB
    assert memory.resident == 2000 * MIB + PROCESS_BYTES
    assert memory.learning == memory.resident + memory.gathered
    assert memory.engine == trained.engine
    assert memory.smallest < trained.smallest


def test_without_flash_attention_there_is_a_mask_and_logits_of_512_tokens() -> None:
    settings = composed("gpu", optimizer={"micro_batch_tokens": 4096})
    plain = replace(settings, fused_logprobs=True, masked_attention=True)

    difference = memory_of(plain).activations - memory_of(flash(settings)).activations

    assert difference == 3 * 4096**2
    # four float32 numbers, and the gradient of the output in bfloat16
    assert memory_of(plain).logits == 16 * 512 * 1024 + 2 * 1024 * 512


def test_a_critic_has_weights_gradients_and_moments() -> None:
    settings = composed("gpu", algorithm={"name": "gae"})

    assert settings.has_critic
    assert memory_of(settings, ROUND).critic == 16 * 1000 * MIB
    assert memory_of(settings, ROUND).learning > memory_of(settings).learning


def test_the_smallest_gpu_holds_learning_playing_and_the_engine() -> None:
    parts = GpuMemory(
        weights=4 * GIB,
        moments=8 * GIB,
        critic=0,
        gradients=4 * GIB,
        gathered=1 * GIB,
        activations=2 * GIB,
        logits=3 * GIB,
        engine_weights=3 * GIB,
        engine_cache=0.5 * GIB,
        engine_share=0.5,
        engine_sleeps=True,
    )

    # learning 13.5 + 4 + 6, playing 13.5 in the half that the engine leaves, an engine of 5
    assert parts.learning == 23.5 * GIB
    assert parts.smallest == 27 * GIB
    assert replace(parts, engine_share=0.25).smallest == 23.5 * GIB
    assert replace(parts, engine_share=0.1).smallest == 50 * GIB
    assert replace(parts, engine_sleeps=False).smallest == 47 * GIB
    assert replace(parts, engine_share=0.0, engine_sleeps=False).smallest == 23.5 * GIB
    assert replace(parts, engine_share=1.0).smallest == float("inf")


def test_the_optimizer_s_step_is_fuller_than_a_backward_pass_of_few_tokens() -> None:
    memory = memory_of(composed("gpu", optimizer={"micro_batch_tokens": 128}))

    assert memory.learning - memory.resident - memory.gradients == pytest.approx(
        max(memory.moments / 2, memory.gathered + memory.activations + memory.logits)
    )
    assert memory.moments / 2 > memory.activations + memory.logits


@given(workers=st.integers(1, 15))
def test_more_gpus_need_less_each_and_never_less_in_all(one_gpu: Composed, workers: int) -> None:
    fewer, more = (
        memory_of(replace(one_gpu, workers_of_a_node=number, num_shards=number))
        for number in (workers, workers + 1)
    )

    assert more.learning < fewer.learning
    assert (workers + 1) * more.learning >= workers * fewer.learning


@pytest.mark.parametrize("rank", [1, 8, 64])
def test_an_adapter_needs_less_than_all_weights(rank: int) -> None:
    whole, adapter = composed("gpu"), composed("gpu", model={"lora_rank": rank})

    assert memory_of(adapter).learning < memory_of(whole).learning
    assert memory_of(adapter).moments == 2 * 4 * rank * 2048


def test_checkpoints_save_activations_from_two_layers_on() -> None:
    size = replace(ROUND, num_layers=28)

    kept = activation_bytes_of_a_token(size, 2, checkpointing=False)

    assert kept == 28 * 2 * (11 * 512 + 3 * 128 + 4 * 1024)
    assert activation_bytes_of_a_token(size, 2, checkpointing=True) < kept / 10
