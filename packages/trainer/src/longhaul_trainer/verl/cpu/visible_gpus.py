"""The user's choice of visible GPUs, kept from a Ray that counts none of them.

verl's pools count Ray's GPUs, and take a worker's number from Ray, which gives numbers to its own
kinds of resources alone. So a run on a CPU declares a made-up GPU for each worker. Ray refuses more
of them than `CUDA_VISIBLE_DEVICES` names, and a machine or a user that trains on a CPU often hides
all GPUs by it (`''`, SLURM's `NoDevFiles`). Ray compares the two while it starts and while a worker
connects; environments, programs and functions of the user's begin later, and see the user's value.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import ray
from ray._private.accelerators import get_accelerator_manager_for_resource

KEPT = "LONGHAUL_VISIBLE_GPUS"
"""Variable: the name and value of the one that Ray's processes do not see, `NAME=value`."""


@contextmanager
def hidden_from_ray() -> Generator[None]:
    """Start Ray without the variable; this process has it again afterwards."""
    manager = get_accelerator_manager_for_resource("GPU")  # of the vendor whose GPUs are here
    name = None if manager is None else manager.get_visible_accelerator_ids_env_var()
    value = None if name is None else os.environ.pop(name, None)
    if name is None or value is None:
        yield
        return
    os.environ[KEPT] = f"{name}={value}"
    try:
        yield
    finally:
        os.environ.pop(KEPT, None)
        os.environ[name] = value


def shown_again() -> None:
    """Set the variable in a process of Ray's; nothing where none is kept.

    Nothing before Ray has connected the process either: while Ray starts, the one that starts it
    imports verl on another thread.
    """
    if not ray.is_initialized():
        return
    name, kept, value = os.environ.pop(KEPT, "").partition("=")
    if kept:
        os.environ[name] = value
