"""Tests for `longhaul_trainer.preflight.resources`: the sum of a run, and of each recipe."""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from recipe_costs import write_headers

from longhaul_core.errors import ConfigError
from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.preflight.resources import Needs, needs_of
from longhaul_trainer.preflight.resources.needs import environment_processes
from longhaul_trainer.preflight.resources.published import PUBLISHED
from longhaul_trainer.preflight.resources.words import (
    needs_in_a_line,
    needs_in_words,
    span_in_words,
)
from longhaul_trainer.run.device import Device
from trainer.preflight.resources.runs import GIB, a_run

CONFIGS = Path(__file__).parents[4] / "configs"
GIGPO_RECIPE = CONFIGS / "recipes" / "gigpo.toml"
MACHINES = CONFIGS / "machines"
RUNS = [
    (CONFIGS / "smoke.toml",),
    *product(
        sorted((CONFIGS / "recipes").glob("*.toml")),
        sorted(MACHINES.glob("*.toml")),
    ),
]


GIGPO: dict[str, object] = {
    "num_training_steps": 150,
    "tasks_per_training_step": 16,
    "rollout": {
        "group_size": 8,
        "horizon": 50,
        "max_prompt_tokens": 2048,
        "max_reply_tokens": 512,
        "concurrent_episodes": 128,
    },
    "environment": {"num_workers": 128},
    "loss": {"kl_coefficient": 0.01, "entropy_coefficient": 0.001},
    "optimizer": {"micro_batch_tokens": 32768},
    "engine": {"max_sequences": 128},
    "resources": {"num_workers": 4},
}
"""GiGPO's sizes on four GPUs."""


def needs_of_recipe(files: Sequence[Path]) -> tuple[RunConfig, Needs]:
    """Of a recipe whose model is not here."""
    run = load_config(files[0], layers=files[1:])
    device: Device = "cpu" if run.resources.device == "cpu" else "gpu"
    return run, needs_of(run, device=device)


def gigpo(folder: Path, **sections: object) -> tuple[RunConfig, Needs]:
    model = {
        "path": str(write_headers(folder / "model", PUBLISHED["Qwen2.5-1.5B-Instruct"])),
        "gradient_checkpointing": True,
    }
    run = a_run(**GIGPO, **sections, model=model)
    return run, needs_of(run, device="gpu")


@pytest.mark.parametrize("files", RUNS, ids=lambda files: " on ".join(f.stem for f in files))
def test_every_recipe_gives_a_sum_that_each_machine_has(files: Sequence[Path]) -> None:
    run, needs = needs_of_recipe(files)
    workers = run.resources.num_workers + run.resources.num_engine_workers

    assert needs.unknown == ()
    assert needs.ray.total <= 4 + 3 * workers
    assert 0 < needs.host.total < (24 + 40 * workers) * GIB
    assert needs.disk.folder < 600 * GIB
    assert needs.open_files == 4096
    if needs.composed.device == "gpu":
        assert needs.gpu is not None
        assert needs.gpu.smallest < 80e9
        assert needs.time is not None
        assert needs.time.seconds[0] > 10


def test_one_gpu_with_eight_processors_is_enough_for_the_recipe_of_one_gpu() -> None:
    machine = MACHINES / "qwen2.5-1.5b-1x80gb.toml"
    _, needs = needs_of_recipe((GIGPO_RECIPE, machine))

    assert needs.ray.total == 7


def test_a_training_step_of_gigpo_s_sizes_takes_minutes(tmp_path: Path) -> None:
    flash = {"actor_rollout_ref.model.override_config.attn_implementation": "flash_attention_2"}
    _, needs = gigpo(tmp_path, verl=flash)

    # 3,840 rows of 900 tokens, twelve operations a parameter, at 40 % of 4 x 989 TFLOP/s
    assert needs.time is not None
    assert needs.time.learned_tokens[0] == pytest.approx(3840 * 900, rel=0.01)
    by_hand = 3840 * 900 * 12 * 1.543714304e9 / (4 * 0.4 * 989e12)
    assert by_hand == pytest.approx(40, rel=0.02)
    assert needs.time.learn_seconds[0] == pytest.approx(by_hand, rel=0.05)


def test_in_sdpa_large_micro_batches_cost_more_than_the_model(
    tmp_path: Path,
) -> None:
    sdpa = {"actor_rollout_ref.model.override_config.attn_implementation": "sdpa"}
    _, needs = gigpo(tmp_path, verl=sdpa)

    # six passes; 28 layers of width 1,536, four operations for each of 32,768 tokens
    attention = 3840 * 900 * 6 * 4 * 28 * 1536 * 32768 / (4 * 0.4 * 989e12)
    assert attention == pytest.approx(74, rel=0.02)
    assert needs.time is not None
    assert needs.time.learn_seconds[0] == pytest.approx(40 + attention, rel=0.05)


def test_what_cannot_be_read_is_named_and_the_rest_is_summed() -> None:
    run = a_run(model={"path": "gone"}, algorithm={"name": "gae"}, critic={"path": "lost"})

    needs = needs_of(run, device="gpu")

    assert needs.unknown == (("model.path", "gone"), ("critic.path", "lost"))
    assert (needs.gpu, needs.time) == (None, None)
    assert needs.ray.total == 7
    assert "and what model.path and critic.path adds" in needs_in_a_line(needs)


def test_a_table_of_verl_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="verl has no such setting"):
        needs_of(a_run(verl={"trainer.nnnodes": 2}), device="cpu")


def test_environments_of_a_class_that_shares_processes_are_counted_by_process() -> None:
    shared = {"id": "longhaul/BabyAI-v0", "num_workers": 40}

    assert environment_processes(a_run(environment=shared)) == 3  # sixteen in each
    assert environment_processes(a_run(environment=shared | {"episodes_per_process": 4})) == 10
    assert environment_processes(a_run(environment=shared | {"isolation": "thread"})) == 0
    assert environment_processes(a_run(environment=shared | {"id": "nobody/Knows-v0"})) == 40
    both = [shared, {"id": "longhaul/TextCraft-v0", "num_workers": 17}]
    assert environment_processes(a_run(environments=both)) == 3 + 2


def test_a_sum_is_put_into_words(tmp_path: Path) -> None:
    run, needs = gigpo(tmp_path)

    words = needs_in_words(run, needs)

    assert words["GPUs"].startswith("4 of about 16 GiB or more: 16 GiB to learn; 6 GiB stay while")
    assert words["processors"] == "16 by Ray's count"
    assert words["disk"].startswith("about 105 GiB: 4 checkpoints of 23.0 GiB and the models")
    assert "on 4 × H100 (assumed): play" in words["time"]
    assert "learn 3.4 to 16 million tokens" in words["time"]
    assert needs.time is not None
    line = needs_in_a_line(needs)
    assert line.startswith("4 GPUs of 16 GiB, about ")
    assert line.endswith(f"{span_in_words(needs.time.seconds)} a training step")


def test_a_small_checkpoint_is_put_into_words_in_mib() -> None:
    run = load_config(CONFIGS / "smoke.toml")
    words = needs_in_words(run, needs_of(run, device="cpu"))
    assert " checkpoints of 0.0 GiB" not in words["disk"]
    assert re.search(r"checkpoints of \d+ MiB and the models", words["disk"])


def test_a_shard_group_of_no_gpu_is_refused_by_name(tmp_path: Path) -> None:
    verl = {"actor_rollout_ref": {"actor": {"fsdp_config": {"fsdp_size": 0}}}}
    with pytest.raises(ConfigError, match=r"actor\.fsdp_config\.fsdp_size is 0: .* at least 1"):
        needs_of(a_run(model={"path": "tiny"}, verl=verl), device="gpu")


def test_a_cpu_has_no_estimate_of_time() -> None:
    run = a_run(model={"path": "tiny"})
    needs = needs_of(run, device="cpu")

    assert needs.time is None
    assert needs_in_words(run, needs).keys() == {"memory", "processors", "disk", "limits"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((0.51, 3.27), "0.51 to 3.3 s"),
        ((30.0, 119.0), "30 to 120 s"),
        ((61.0, 1790.0), "1 to 30 min"),
        ((3600.0, 36_000.0), "1 to 10 h"),
        ((36_000.0, 446_400.0), "10 to 120 h"),
    ],
)
def test_a_span_is_in_the_unit_of_its_end_and_no_more_precise(
    seconds: tuple[float, float], words: str
) -> None:
    assert span_in_words(seconds) == words
