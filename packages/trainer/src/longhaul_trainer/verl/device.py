"""CPU or GPU: decided once, before anything heavy is imported."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from typing import Literal

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig

Device = Literal["cpu", "gpu"]


def num_gpus() -> int:
    """GPUs that this process may use, asked of the driver without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "" or shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(
        ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30
    )
    found = len(listed.stdout.splitlines()) if listed.returncode == 0 else 0
    return min(found, len(visible.split(","))) if visible else found


def has_cuda_engine() -> bool:
    """Whether vLLM's CUDA build is installed; the CPU build is another distribution."""
    try:
        return "cpu" not in importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return False


def choose_device(run: RunConfig, *, cuda_engine: bool | None = None) -> Device:
    """Where `run` trains: on GPUs if it says so, or if it may and can.

    Args:
        run: The run.
        cuda_engine: Whether vLLM's CUDA build is there; None: look.

    Raises:
        MachineError: If it asks for GPUs, or an engine, that are not there.
    """
    wanted = run.resources.device
    cuda_engine = has_cuda_engine() if cuda_engine is None else cuda_engine
    on_cluster = run.resources.ray_address is not None
    if wanted == "cpu":
        return "cpu"
    found = num_gpus()
    if wanted == "auto" and not (cuda_engine and (found or on_cluster)):
        return "cpu"
    if not cuda_engine:
        raise MachineError(
            'resources.device = "gpu" needs vLLM\'s CUDA build, and the CPU build is installed; '
            "`make gpu` changes that for every later `uv run`"
        )
    asked = run.resources.num_workers + run.resources.num_engine_workers
    if not on_cluster and found < asked:
        engines = f" + resources.num_engine_workers = {run.resources.num_engine_workers}"
        raise MachineError(
            f"resources.num_workers = {run.resources.num_workers}"
            f"{engines if run.resources.num_engine_workers else ''} needs as many GPUs, "
            f'this machine shows {found}; lower it, or set resources.device to "cpu"'
        )
    return "gpu"
