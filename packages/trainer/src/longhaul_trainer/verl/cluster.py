"""The Ray that a run works on: one of its own on this machine, or a cluster it joins.

Ray schedules by logical processors. verl asks for more of them than a small machine has
and waits for ever, silently, if they are not there, so a Ray of our own is started with
as many as a run needs; the real ones are shared by the operating system.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import ray

from longhaul_core.errors import MachineError
from longhaul_trainer.config import RunConfig

LOGICAL_CPUS = 16
"""More than the training worker, the storage unit, the router and verl's pools ask for."""

OBJECT_STORE_BYTES = 1 << 30


@contextmanager
def connected(run: RunConfig, *, device: str, python: Path | None) -> Generator[None]:
    """Join or start Ray while the block runs; a Ray of our own ends with it.

    Args:
        run: The run.
        device: `"cpu"` or `"gpu"`.
        python: The interpreter of the workers of a Ray of our own; None for this one.

    Raises:
        MachineError: If the cluster cannot be reached or lacks what the run asks for.
    """
    resources = run.resources
    if resources.ray_address is not None:
        try:
            ray.init(address=resources.ray_address, log_to_driver=True)
        except ConnectionError as error:
            raise MachineError(
                f"no Ray answers at resources.ray_address = {resources.ray_address!r}; "
                "start it with `ray start --head`, or leave the setting out"
            ) from error
    else:
        ray.init(
            address="local",
            num_cpus=LOGICAL_CPUS + 4 * resources.num_workers if device == "cpu" else None,
            num_gpus=resources.num_workers if device == "cpu" else None,
            object_store_memory=OBJECT_STORE_BYTES if device == "cpu" else None,
            include_dashboard=False,
            log_to_driver=True,
            configure_logging=False,
            runtime_env=None if python is None else {"py_executable": shlex.quote(str(python))},
        )
    try:
        _check_resources(run)
        yield
    finally:
        ray.shutdown()


def _check_resources(run: RunConfig) -> None:
    """Refuse what would wait for ever."""
    have = ray.cluster_resources()
    wanted = {
        "GPU": run.resources.num_workers * run.resources.num_nodes,
        "CPU": 4 * run.resources.num_workers * run.resources.num_nodes,
    }
    missing = [
        f"{name}: {have.get(name, 0):g} of {amount}"
        for name, amount in wanted.items()
        if have.get(name, 0) < amount
    ]
    if missing:
        raise MachineError(
            f"the Ray cluster lacks resources ({', '.join(missing)}); lower "
            "resources.num_workers or resources.num_nodes, or add nodes"
        )
