"""The Ray that a run works on: one of its own on this machine, or a cluster it joins.

Ray schedules by logical processors. verl asks for more of them than a small machine has
and waits for ever, silently, if they are not there, so a Ray of our own is started with
as many as a run needs (`preflight.resources`), on GPUs as on a CPU; the real ones are
shared by the operating system. A cluster's nodes were started by somebody else, so they are asked.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import signal
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray

from longhaul_core.errors import MachineError
from longhaul_core.processes import descendants
from longhaul_trainer.config import RunConfig
from longhaul_trainer.models.caches import home_is_writable
from longhaul_trainer.run.device import Device
from longhaul_trainer.run.garbage import nothing_collected
from longhaul_trainer.run.ray_token import keep_ray_token_private
from longhaul_trainer.verl.composed import compose
from longhaul_trainer.verl.cpu.lean_ray import lean_ray
from longhaul_trainer.verl.cpu.visible_gpus import hidden_from_ray
from longhaul_trainer.verl.loopback import on_loopback
from longhaul_trainer.verl.nodes import (
    living_nodes,
    require_alike,
    require_free_cluster,
    require_size,
)
from longhaul_trainer.verl.processors import ray_processors
from longhaul_trainer.verl.variables import worker_variables

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 1 << 30
START_LIMITS = ("RAY_gcs_server_port_wait_time_s", "RAY_raylet_start_wait_time_s")
"""Ray's variables, which `prepare_environment` sets where the user does not."""


@contextmanager
def connected(
    run: RunConfig, *, device: Device, python: Path | None, files: Sequence[Path] = ()
) -> Generator[None]:
    """Join or start Ray while the block runs; a Ray of our own ends with it.

    Args:
        run: The run.
        device: `"cpu"` or `"gpu"`.
        python: The interpreter of Ray's workers, on every node; None for Ray's own choice.
        files: That every node of a cluster must see.

    Raises:
        MachineError: If Ray does not start, or the cluster cannot be reached, lacks what the run
            asks for, or is not the same on every node.
    """
    resources, composed = run.resources, compose(run, device)
    keep_ray_token_private()
    with _folder_of_sockets() as folder, ExitStack() as stack:
        if resources.ray_address is not None:
            _join(resources.ray_address, device=device, python=python)
        else:
            stack.enter_context(on_loopback(folder))
            _start(
                device,
                num_cpus=ray_processors(composed).total,
                num_gpus=resources.num_workers + resources.num_engine_workers
                if device == "cpu"
                else None,
                object_store_memory=OBJECT_STORE_BYTES if device == "cpu" else None,
                runtime_env=_started_by(python),
            )
        try:
            nodes = living_nodes()
            require_size(nodes, composed)
            if resources.ray_address is not None:
                require_free_cluster()
                require_alike(nodes, files=files)
            yield
        finally:
            with nothing_collected():
                ray.shutdown()


@contextmanager
def _folder_of_sockets() -> Generator[Path]:
    """Have vLLM's engines put their sockets where they are deleted with the run.

    vLLM puts them into the folder of temporary files and leaves them there. A user's own choice
    stays, and so does that of a cluster, whose nodes have disks of their own.
    """
    name = "VLLM_RPC_BASE_PATH"
    with TemporaryDirectory(prefix="longhaul-") as folder:
        ours = os.environ.setdefault(name, folder) == folder
        try:
            yield Path(folder)
        finally:
            if ours:
                del os.environ[name]


def _start(device: Device, **options: Any) -> None:  # noqa: ANN401  Ray's own
    """Start a Ray of this machine alone; one that does not come up is started once more.

    Raises:
        MachineError: If the second does not come up either.
    """
    if not home_is_writable():  # where Ray writes the token that its processes ask for
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        _bring_up(device, **options)
    except MachineError as error:
        logger.warning("%s; it is started once more", error)
        _bring_up(device, **options)


def _bring_up(device: Device, **options: Any) -> None:  # noqa: ANN401  Ray's own
    """Start a Ray, whole or not at all.

    Raises:
        MachineError: If it does not come up.
    """
    there = set(descendants(os.getpid()))
    try:
        with ExitStack() as stack:
            if device == "cpu":
                stack.enter_context(hidden_from_ray())
                stack.enter_context(lean_ray())
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=True,
                configure_logging=False,
                **options,
            )
    # Ray raises `Exception` itself where its processes are too slow.
    except Exception as error:
        for pid in set(descendants(os.getpid())) - there:  # they would stay until this one ends
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reason = _reason_of(error)
        limits = ", ".join(f"{name}={os.environ.get(name, '30')}" for name in START_LIMITS)
        raise MachineError(
            f"Ray did not start on this machine ({reason}); if it was too slow, end what else "
            f"keeps its processors busy, or raise the limits of its start in seconds, {limits}; "
            f"Ray's logs are in ray/session_latest/logs of {os.environ['RAY_TMPDIR']}"
        ) from error


def _reason_of(error: Exception) -> str:
    """Why Ray did not start, in a line.

    Where its node has ended itself, Ray says that it was slow, and the node's log alone why: so
    ends each that waits 15 s for a port of its agents (ray-project/ray#65983).
    """
    log = Path(os.environ["RAY_TMPDIR"], "ray", "session_latest", "logs", "raylet.err")
    if "timed out during startup" in str(error) and log.exists():
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"Check failed: (.+)", said):
            return found[1].strip()
    return (str(error).strip().splitlines() or [repr(error)])[-1]


def _started_by(python: Path | None) -> dict[str, Any]:
    """Ray's settings for an interpreter of its workers."""
    return {} if python is None else {"py_executable": shlex.quote(str(python))}


def _join(address: str, *, device: str, python: Path | None) -> None:
    """Join a cluster; its workers get the variables that this process would have given them."""
    try:
        ray.init(
            address=address,
            log_to_driver=True,
            configure_logging=False,
            runtime_env={"env_vars": worker_variables(device), **_started_by(python)},
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error.__cause__ or error).strip().splitlines()[-1]
        raise MachineError(
            f"resources.ray_address = {address!r} cannot be joined ({reason}); start Ray on this "
            "machine too (`ray start --head`, or `ray start --address=…` beside another head), "
            "with the same RAY_AUTH_MODE and token as the other nodes, or leave the setting out"
        ) from error
