"""CPU or GPU: decided once, before anything heavy is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from itertools import takewhile
from pathlib import Path
from typing import Literal

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.provenance import Gpu, find_gpus

Device = Literal["cpu", "gpu"]

LEAST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""Oldest driver, by its first number, for each of CUDA's versions; by NVIDIA's table of minor
version compatibility."""


def usable_gpus() -> tuple[Gpu, ...]:
    """GPUs that this process may use, asked of the driver without importing torch."""
    return visible_gpus(find_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Those that a run may use.

    Args:
        gpus: All of the machine's, in the driver's order.
        visible: What `CUDA_VISIBLE_DEVICES` says: indices or names of devices, up to a -1;
            None for all.
    """
    if visible is None:
        return gpus
    parts = (part.strip() for part in visible.split(","))
    named = list(takewhile(lambda part: part not in ("", "-1"), parts))
    if all(part.isdigit() for part in named):
        return tuple(gpus[int(part)] for part in named if int(part) < len(gpus))
    return gpus[: len(named)]


def has_cuda_engine() -> bool:
    """Whether vLLM's CUDA build is installed; the CPU build is another distribution."""
    try:
        return "cpu" not in importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return False


def torch_cuda_version() -> str | None:
    """CUDA that the installed torch was built for, e.g. `13.0`; None without torch or CUDA.

    Read from its file `version.py`; torch is not imported.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    named = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", text, flags=re.MULTILINE)
    return None if named is None else named[1]


def least_driver(cuda: str) -> int | None:
    """First number of the oldest driver that runs a version of CUDA; None of an unknown version."""
    return LEAST_DRIVERS.get(int(cuda.partition(".")[0]))


def wanted_device(run: RunConfig, *, num_gpus: int, cuda_engine: bool | None = None) -> Device:
    """Where `run` means to train, if it can: on GPUs if it says so, or if it may and there are any.

    Args:
        run: The run.
        num_gpus: How many this machine shows; a cluster may have others.
        cuda_engine: Whether vLLM's CUDA build is there; None: look.
    """
    if run.resources.device != "auto":
        return run.resources.device
    cuda_engine = has_cuda_engine() if cuda_engine is None else cuda_engine
    on_cluster = run.resources.ray_address is not None
    return "gpu" if cuda_engine and (num_gpus or on_cluster) else "cpu"


def choose_device(run: RunConfig, *, cuda_engine: bool | None = None) -> Device:
    """Where `run` trains: where it means to, once it is sure that it can.

    Args:
        run: The run.
        cuda_engine: Whether vLLM's CUDA build is there; None: look.

    Raises:
        MachineError: If it asks for GPUs, or an engine, that are not there.
    """
    cuda_engine = has_cuda_engine() if cuda_engine is None else cuda_engine
    found = len(usable_gpus()) if run.resources.device != "cpu" else 0
    if wanted_device(run, num_gpus=found, cuda_engine=cuda_engine) == "cpu":
        return "cpu"
    if not cuda_engine:
        raise MachineError(
            'resources.device = "gpu" needs vLLM\'s CUDA build, and the CPU build is installed; '
            "`make gpu` changes that for every later `uv run`"
        )
    asked = run.resources.num_workers + run.resources.num_engine_workers
    if run.resources.ray_address is None and found < asked:
        engines = f" + resources.num_engine_workers = {run.resources.num_engine_workers}"
        raise MachineError(
            f"resources.num_workers = {run.resources.num_workers}"
            f"{engines if run.resources.num_engine_workers else ''} needs as many GPUs, "
            f'this machine shows {found}; lower it, or set resources.device to "cpu"'
        )
    return "gpu"
