"""Tests for `longhaul_trainer.preflight.resources.host_memory`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.preflight.resources import needs_of
from longhaul_trainer.preflight.resources.host_memory import (
    AGENT_LOOP_BYTES,
    ENVIRONMENT_BYTES,
    GPU_PROCESSES_BYTES,
    PROCESSES_BYTES,
    WORKER_BYTES,
    HostMemory,
    host_memory,
)
from longhaul_trainer.preflight.resources.model_size import ModelSize
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.composed import compose
from trainer.preflight.resources.runs import GIB, MIB, ROUND, SEEING, a_run

SHORT = {"max_prompt_tokens": 64, "max_reply_tokens": 16, "group_size": 2, "horizon": 5}
SECTIONS: dict[str, object] = {
    "model": {"engine_dtype": "bfloat16"},
    "optimizer": {"micro_batch_tokens": 131072},
    "engine": {"memory_gib": 3.0},
}


def memory_of(
    run: RunConfig, device: Device = "cpu", *, size: ModelSize = ROUND, processes: int = 0
) -> HostMemory:
    critic = size if run.algorithm.uses_critic else None
    return host_memory(run, compose(run, device), size, critic, environment_processes=processes)


@pytest.mark.parametrize(
    "reference", [{"loss": {"kl_coefficient": 0.1}}, {"algorithm": {"reward_kl_coefficient": 0.1}}]
)
def test_memory_on_a_cpu_is_the_sum_that_the_docstring_says(reference: dict[str, Any]) -> None:
    memory = memory_of(a_run(**SECTIONS, **reference))

    # 1000 MiB of parameters, (16 + 4 + 2 + 4) bytes each
    assert memory.model == 26000 * MIB
    # activations: 240 bytes x 2 layers x 512 x 131072 = 30720 MiB
    # logits and gradient of a quarter of the tokens: 8 bytes x 32768 x 1024 = 256 MiB
    assert memory.batch == (30720 + 256) * MIB + 3 * GIB
    assert memory.processes == PROCESSES_BYTES


def test_an_evaluation_has_no_gradients_moments_or_batch() -> None:
    run = a_run(**SECTIONS)
    composed = compose(run, "cpu", trains=False)

    memory = host_memory(run, composed, ROUND, None, environment_processes=0)

    # 1000 MiB of parameters, (4 + 4 + 2) bytes each
    assert memory.model == 10000 * MIB
    assert memory.batch == 3 * GIB
    trained = memory_of(run)
    assert (memory.processes, memory.rows) == (trained.processes, trained.rows)
    assert trained.model == 22000 * MIB


def test_the_sums_of_the_measured_runs_are_what_was_measured() -> None:
    from longhaul_trainer.cli.arguments import DEFAULT_RUN
    from longhaul_trainer.cli.train import read_description

    smoke = load_config(Path(__file__).parents[4] / "configs" / "smoke.toml")

    for run, gib in ((smoke, 3.6), (read_description(DEFAULT_RUN, None), 9.3)):
        assert needs_of(run, device="cpu").host.total / GIB == pytest.approx(gib, rel=0.15)


def test_two_workers_share_the_training_state_and_little_else() -> None:
    memory = memory_of(a_run(**SECTIONS, resources={"num_workers": 2}))

    # 16 bytes of each parameter, and (4 + 2 + 8) for each worker
    assert memory.model == 44000 * MIB
    assert memory.batch == 2 * ((30720 + 256) * MIB + 3 * GIB)
    assert memory.processes == PROCESSES_BYTES + WORKER_BYTES


def test_engines_of_their_own_have_weights_a_cache_and_processes() -> None:
    trainer = {"mode": "separate_async", "prefetch_batches": 1, "max_staleness": 1}
    resources = {"num_workers": 1, "num_engine_workers": 2}
    together = memory_of(a_run(**SECTIONS))

    apart = memory_of(a_run(**SECTIONS, trainer=trainer, resources=resources))

    assert apart.model - together.model == 2 * 1000 * MIB
    assert apart.batch - together.batch == 3 * GIB
    assert apart.processes - together.processes == 2 * WORKER_BYTES
    on_gpus = memory_of(a_run(**SECTIONS, trainer=trainer, resources=resources), "gpu")
    loops = AGENT_LOOP_BYTES
    assert on_gpus.processes == PROCESSES_BYTES + 3 * GPU_PROCESSES_BYTES + loops


def test_an_adapter_needs_memory_for_its_own_gradient_and_moments_and_no_reference() -> None:
    loss = {"kl_coefficient": 0.1}
    whole = memory_of(a_run(loss=loss))
    adapter = memory_of(a_run(loss=loss, model={"lora_rank": 1024}))
    trained = 1024 * 2048

    assert whole.model - adapter.model == 12 * (1000 * MIB - trained) + 4 * 1000 * MIB


def test_rows_and_environments_are_in_memory_too() -> None:
    run = a_run(
        tasks_per_training_step=2,
        rollout={
            "group_size": 4,
            "horizon": 10,
            "max_prompt_tokens": 1000,
            "max_reply_tokens": 100,
        },
    )

    memory = memory_of(run, processes=8)

    # 80 rows: 24 bytes of a prompt's token, 72 of a reply's, three times over
    assert memory.rows == 3 * 80 * (24_000 + 7_200)
    assert memory.environments == 8 * ENVIRONMENT_BYTES
    assert memory.total == pytest.approx(
        memory.processes + memory.model + memory.batch + memory.rows + memory.environments
    )


@pytest.mark.parametrize(
    ("environment", "pixels"),
    [
        pytest.param({"options": {"observation": "image", "size": 5}}, 160 * 160, id="known"),
        pytest.param({"options": {"observation": "image", "size": 9}}, 64 * 1024, id="cut"),
        pytest.param(
            {"id": "longhaul/EZPoints-v0", "options": {"observation": "image"}},
            64 * 1024,
            id="a table of cards, cut",
        ),
        pytest.param(
            {"options": {"observation": "image", "boxoban": "hard"}}, 4096, id="unknown, smallest"
        ),
        pytest.param({"options": {}}, 0, id="text"),
    ],
)
def test_a_row_holds_its_pictures_as_they_are_read(
    environment: dict[str, Any], pixels: int
) -> None:
    run = a_run(environment={"id": "longhaul/Sokoban-v0"} | environment, rollout=SHORT)

    seen, unseen = memory_of(run, size=SEEING), memory_of(run)

    # 10 rows; three colours of two frames in float32 for each pixel
    assert seen.rows - unseen.rows == 3 * 10 * 3 * 2 * 4 * pixels


@pytest.mark.parametrize(("rows", "times"), [("step", 3), ("merged", 1)])
def test_a_whole_history_shows_earlier_pictures_again(rows: str, times: int) -> None:
    options = {"observation": "image", "size": 5}
    run = a_run(
        environment={"id": "longhaul/Sokoban-v0", "options": options},
        memory={"kind": "full"},
        optimizer={"rows": rows},
        rollout=SHORT | {"max_prompt_tokens": 128},
    )

    # of 5 steps the third, which is the mean, has three pictures
    pictures = 3 * 10 * 24 * times * 160 * 160
    assert memory_of(run, size=SEEING).rows - memory_of(run).rows == pictures


def test_a_small_picture_is_read_enlarged() -> None:
    assert SEEING.sight is not None
    assert SEEING.sight.pixels(64 * 60) == 4096
    assert SEEING.sight.pixels(64 * 65) == 4160


def test_on_gpus_the_weights_pass_through_the_machine_and_the_reference_stays() -> None:
    run = a_run(
        tasks_per_training_step=4,
        loss={"kl_coefficient": 0.1},
        resources={"num_workers": 4},
        environment={"num_workers": 32},
    )

    memory = memory_of(run, "gpu")

    # tied: each of four workers loads float32; the reference is bfloat16, shared by them
    assert memory.model == (4 * 4 + 2) * 1000 * MIB
    assert memory_of(run, "gpu", size=replace(ROUND, tied=False)).model == (4 + 2) * 1000 * MIB
    assert memory.processes == PROCESSES_BYTES + 4 * GPU_PROCESSES_BYTES + 4 * AGENT_LOOP_BYTES
    assert memory.batch == 0


def test_an_adapter_s_engine_keeps_its_weights_in_memory_while_it_sleeps() -> None:
    run = a_run(model={"lora_rank": 8})

    assert memory_of(run, "gpu").model == (4 + 2) * 1000 * MIB
