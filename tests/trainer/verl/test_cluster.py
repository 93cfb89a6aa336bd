"""Tests for `longhaul_trainer.verl.cluster`: Ray has what verl will ask it for, and no more."""

import importlib
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from longhaul_core.errors import MachineError
from longhaul_core.processes import descendants
from longhaul_trainer.config import RunConfig, load_config
from longhaul_trainer.run.device import Device
from longhaul_trainer.verl.composed import compose
from longhaul_trainer.verl.processors import ray_processors
from longhaul_trainer.verl.queue_rows import most_rows
from longhaul_trainer.verl.settings import settings_without_files
from trainer.verl.pythons import Pythons
from verl_process import IMPORTS_VERL

pytestmark = IMPORTS_VERL

CONFIGS = Path(__file__).parents[3] / "configs"
MODES = sorted((CONFIGS / "modes").glob("*.toml"))
GIGPO = CONFIGS / "recipes" / "gigpo.toml"
MACHINES = CONFIGS / "machines"
RUNS = [
    [CONFIGS / "smoke.toml"],
    *([GIGPO, machine] for machine in sorted(MACHINES.glob("*.toml"))),
    *([GIGPO, MACHINES / "qwen2.5-1.5b-2x80gb.toml", mode] for mode in MODES),
]


def loaded(files: Sequence[Path]) -> tuple[RunConfig, Device]:
    run = load_config(files[0], layers=files[1:])
    return run, "cpu" if run.resources.device == "cpu" else "gpu"


def processors_of(actor_class: Any) -> int:  # noqa: ANN401  Ray's own
    """That an actor of a class asks for by its decorator."""
    return int(actor_class._default_options["num_cpus"])


@pytest.mark.parametrize(
    "refused",
    [
        Exception("Ray's lines before\nThe current node timed out during startup."),
        ValueError("Resource quantities must all be whole numbers."),
    ],
)
def test_a_ray_that_does_not_start_is_an_error_that_says_what_to_do(
    refused: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longhaul_trainer.verl.cluster import connected

    def refuse(**_: object) -> None:
        raise refused

    monkeypatch.setattr("ray.init", refuse)
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "77")

    with (
        pytest.raises(MachineError, match=r"\((The current|Resource) .*\); if .*start_.*=77"),
        connected(load_config(CONFIGS / "smoke.toml"), device="cpu", python=None),
    ):
        pass


def test_the_check_that_ended_ray_s_node_is_named_in_place_of_a_slow_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longhaul_trainer.verl.cluster import connected

    def refuse(**_: object) -> None:
        (logs := tmp_path / "ray" / "session_latest" / "logs").mkdir(parents=True, exist_ok=True)
        (logs / "raylet.err").write_text(
            "[2026-11-29 11:31:15,601 C 13583 13583] (raylet) node_manager.cc:3576:  An unexpected "
            "system state has occurred. Check failed: status.has_value() Timed out waiting for "
            "file /tmp/metrics_agent_port_5cfa\n*** StackTrace Information ***\n"
        )
        raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr("ray.init", refuse)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))

    with (
        pytest.raises(MachineError, match=r"\(status.* waiting for file /tmp/metrics_agent_port"),
        connected(load_config(CONFIGS / "smoke.toml"), device="cpu", python=None),
    ):
        pass


def test_a_ray_that_is_too_slow_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from longhaul_trainer.verl.cluster import connected
    from trainer.verl.local_ray import wait_for

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_gcs_server_port_wait_time_s", "0")
    before = running_below(os.getpid())

    with (
        warnings.catch_warnings(action="ignore", category=ResourceWarning),
        pytest.raises(MachineError, match="Timed out waiting"),
        connected(load_config(CONFIGS / "smoke.toml"), device="cpu", python=None),
    ):
        pass

    wait_for(lambda: running_below(os.getpid()) == before)


def running_below(pid: int) -> set[int]:
    """Processes that a process has started, without those that have ended."""
    return {
        child
        for child in descendants(pid)
        if "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text("ascii")
    }


@pytest.mark.parametrize("files", RUNS, ids=lambda files: files[-1].stem)
def test_the_sum_is_what_verl_s_and_transfer_queue_s_own_classes_ask_for(
    files: Sequence[Path],
) -> None:
    from ray._private import ray_constants
    from transfer_queue.controller import TransferQueueController
    from transfer_queue.storage.simple_storage import SimpleStorageUnit
    from verl.single_controller.ray import ResourcePoolManager

    run, device = loaded(files)
    settings = settings_without_files(run, device=device)
    units = settings.transfer_queue.backend.SimpleStorage.num_data_storage_units
    pools = [([settings.trainer.n_gpus_per_node] * settings.trainer.nnodes, {})]
    if not settings.actor_rollout_ref.hybrid_engine:
        engines = settings.actor_rollout_ref.rollout
        # `RolloutReplica.init_standalone`, pinned in tests/upstream
        pools.append(([engines.n_gpus_per_node] * engines.nnodes, {"max_colocate_count": 2}))
    asked = processors_of(TransferQueueController) + units * processors_of(SimpleStorageUnit)
    for gpus_of_nodes, colocated in pools:
        manager = ResourcePoolManager(
            resource_pool_spec={"pool": gpus_of_nodes}, mapping={}, **colocated
        )
        asked += sum(gpus_of_nodes) * manager.max_colocate_count
    # an actor without a request holds nothing, and is placed where one processor is free
    assert ray_constants.DEFAULT_ACTOR_CREATION_CPU_SIMPLE == 0
    asked += 1

    assert ray_processors(compose(run, device)).total == asked


NEEDED = {"gcs_server", "raylet", "log_monitor.py", "ray::RuntimeEnvAgent"}
RAYS_OWN = {*NEEDED, "dashboard.py", "ray::DashboardAgent", "monitor.py --logs", "setup_worker.py"}
"""Names a process that Ray starts by itself."""


def test_verl_that_is_imported_while_ray_starts_shows_no_gpus_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from longhaul_trainer.verl.cpu.visible_gpus import hidden_from_ray
    from longhaul_trainer.verl.plugin import register

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")

    with hidden_from_ray():
        register()
        assert "CUDA_VISIBLE_DEVICES" not in os.environ

    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("visible", ["", "0"])
def test_gpus_that_are_hidden_are_none_of_a_cpu_run_s_business(
    visible: str, pythons: Pythons, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from longhaul_trainer.verl.cluster import connected

    class Worker:
        def looks(self) -> tuple[list[str], str | None]:
            importlib.import_module("longhaul_trainer.verl.plugin")  # verl does it in each worker
            ids = ray.get_runtime_context().get_accelerator_ids()["GPU"]
            return ids, os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    run = load_config(CONFIGS / "smoke.toml", ["resources.num_workers=2"])

    with connected(run, device="cpu", python=Path(pythons.engine)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == visible
        actor: Any = ray.remote(Worker)
        workers = [actor.options(num_gpus=1).remote() for _ in range(2)]
        looked = ray.get([worker.looks.remote() for worker in workers], timeout=240)
        ours = set(descendants(os.getpid()))
        found = [one for one in psutil.process_iter(["cmdline"]) if one.pid in ours]
        commands = [" ".join(one.info["cmdline"] or ()) for one in found]

    started = {name for name in RAYS_OWN if any(name in command for command in commands)}
    assert started == NEEDED, commands
    assert sorted(looked) == [(["0"], visible), (["1"], visible)]


def test_a_ray_of_the_run_s_own_has_exactly_the_processors_that_verl_takes(
    pythons: Pythons,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray
    import transfer_queue
    from verl.single_controller.ray import RayResourcePool

    from longhaul_trainer.verl.cluster import connected
    from trainer.verl.local_ray import wait_for

    class Engine:
        def answer(self) -> tuple[str, str]:
            return os.environ["VLLM_RPC_BASE_PATH"], ray.util.get_node_ip_address()

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    run = load_config(CONFIGS / "smoke.toml")
    settings = settings_without_files(run, device="cpu")

    with connected(run, device="cpu", python=Path(pythons.engine)):
        assert ray.cluster_resources()["CPU"] == ray_processors(compose(run, "cpu")).total
        transfer_queue.init(settings.transfer_queue)
        try:
            pool = RayResourcePool([run.resources.num_workers], max_colocate_count=3)
            pool.get_placement_groups(device_name="cpu")  # waits until it is there
            actor: Any = ray.remote(Engine)
            folder, address = ray.get(actor.remote().answer.remote(), timeout=120)
            sockets = Path(folder)
            assert sockets.is_dir()
            assert sockets.stat().st_mode & 0o777 == 0o700
            assert address == "127.0.0.1"
            # what is left is what an actor is placed with
            placing = ray_processors(compose(run, "cpu")).placing
            # Ray counts anew some moments after the actor has been placed.
            wait_for(lambda: ray.available_resources().get("CPU", 0) == placing)
        finally:
            transfer_queue.close()

    assert not sockets.exists()
    assert "VLLM_RPC_BASE_PATH" not in os.environ


def test_on_gpus_too_whatever_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from longhaul_trainer.verl.cluster import connected

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = load_config(GIGPO, layers=[MACHINES / "qwen2.5-7b-8x80gb.toml"])

    with (
        pytest.raises(MachineError, match=r"8 GPUs and 28 CPUs by .* has 0 and 28;"),
        connected(run, device="gpu", python=None),
    ):
        pass


def test_transfer_queue_takes_every_row_of_a_run_of_256_times_8_episodes_of_50_steps() -> None:
    from transfer_queue.storage.simple_storage import StorageUnitData

    sizes = ["tasks_per_training_step=256", "rollout.group_size=8", "rollout.horizon=50"]
    run = load_config(GIGPO, sizes, layers=[MACHINES / "qwen2.5-1.5b-1x80gb.toml"])
    queue = settings_without_files(run, device="gpu").transfer_queue.backend.SimpleStorage
    units, rows = queue.num_data_storage_units, 256 * 8 * 50
    assert queue.total_storage_size == most_rows(run)

    for unit in range(units):
        # as `SimpleStorageUnit` and `_group_by_hash` divide them
        data = StorageUnitData(math.ceil(queue.total_storage_size / units))
        indexes = list(range(unit, rows, units))
        data.put_data({"field": indexes}, indexes)
        assert len(data._active_keys) == len(indexes)
