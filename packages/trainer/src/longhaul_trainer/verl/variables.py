"""Environment variables of a run: set before Ray, verl or vLLM is imported.

Every process of a run inherits them from this one. Ray reads some while it is imported,
so this module imports none of the three.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

from longhaul_core.addresses import go_direct
from longhaul_core.errors import MachineError
from longhaul_trainer.run.offline import OFFLINE_ENVIRONMENT, stay_offline

ENVIRONMENT = {
    # Ray runs its workers at niceness 15: below whatever else the machine does.
    "RAY_worker_niceness": "0",
    # Seconds for Ray's processes to come up: 30 are too few where others keep the machine busy.
    "RAY_raylet_start_wait_time_s": "150",
    "RAY_gcs_server_port_wait_time_s": "150",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TRANSFER_QUEUE_ENABLE": "1",
    "TOKENIZERS_PARALLELISM": "true",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
}
"""For every process of a run; a value that the user has set stays."""

CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    # Ray would otherwise hand logical device numbers to vLLM.
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    # Ray would begin workers ahead of time, which no run with an interpreter of its own can use.
    "RAY_prestart_worker_first_driver": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # vLLM would compile small kernels with the C++ compiler at every start.
    "TORCHDYNAMO_DISABLE": "1",
}


def prepare_environment(device: str, *, scratch: Path, num_workers: int = 1) -> None:
    """Set the variables that every process of the run inherits. Call before importing verl.

    Args:
        device: `"cpu"` or `"gpu"`.
        scratch: A folder of the run for small files.
        num_workers: Training processes that share this machine's processors.
    """
    stay_offline()
    go_direct()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if device == "cpu":
        os.environ.update(CPU_ENVIRONMENT)
        # Ray and vLLM give each of their processes one thread by default. Learner and
        # engine take turns, so each may have every processor.
        threads = len(os.sched_getaffinity(0)) // num_workers
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, threads)))
        _name_vllm(scratch / "python-path")


def worker_variables(device: str) -> dict[str, str]:
    """Of those that `prepare_environment` has set, what the workers of a cluster must be given.

    The cluster was there before the run, so they inherit nothing of this process.

    Args:
        device: `"cpu"` or `"gpu"`.
    """
    names = [*OFFLINE_ENVIRONMENT, *ENVIRONMENT, "PYTHONPATH"]
    names += ["LONGHAUL_ENV_TOKEN", "LONGHAUL_RUNNER_TOKEN"]
    if device == "cpu":
        names += [*CPU_ENVIRONMENT, "OMP_NUM_THREADS"]
    return {name: os.environ[name] for name in names if name in os.environ}


def _name_vllm(folder: Path) -> None:
    """Let a look-up of the distribution `vllm` find vLLM's CPU build.

    verl asks for the version of `vllm`; the CPU build is the distribution `vllm-cpu` with
    the same import name. A metadata folder on the path of all processes answers for it.
    """
    try:
        importlib.metadata.version("vllm")
        return
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        version = importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        raise MachineError(
            "vLLM is not installed; `uv sync` installs its CPU build, `make gpu` its CUDA build"
        ) from None
    metadata = folder / f"vllm-{version}+cpu.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n", encoding="utf-8"
    )
    sys.path.append(str(folder))
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
