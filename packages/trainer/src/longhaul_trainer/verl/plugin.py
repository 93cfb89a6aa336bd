"""What verl loads in every one of its processes, through the entry-point group `verl.plugins`.

verl imports this module and calls nothing, so importing it is what registers. Off the
CPU platform it registers the learner's way to the engine alone: the few other subclasses of a GPU
run are registered where they are (`policy_worker`, `critic_worker`, `engine_server`,
`weight_transfer`).
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from longhaul_core.errors import MachineError
from longhaul_trainer.verl.loopback import meet_in_a_file

PLATFORM_VARIABLE = "VERL_PLATFORM"
"""verl's own variable. `launch` sets it to `"cpu"` for runs without an accelerator."""
RAYS_WORKER = "default_worker.py"
"""The program that a worker of Ray runs."""


def register() -> None:
    """Register what this process may need. Safe to call twice."""
    if Path(sys.argv[0]).name == RAYS_WORKER:
        _end_with_python()
    if os.environ.get(PLATFORM_VARIABLE) == "cpu":
        _register_platform()  # first: what is imported below asks for the platform
    meet_in_a_file()
    rollouts: Any = importlib.import_module("verl.workers.rollout.base")
    adapter = "longhaul_trainer.verl.engine_updates.PrivateServerAdapter"
    rollouts._ROLLOUT_REGISTRY["vllm", "async"] = adapter


def _end_with_python() -> None:
    """Have this process end once Python has, with its status, and run no more exit handlers.

    Ray's destroys what its worker has left. A message that waits there for a subscriber posts
    itself to a queue that is gone by then, and the process waits for that queue's lock for ever:
    verl's load balancer was seen to, more than once, and outlived its run. Handlers run from the
    newest to the oldest, and Ray's worker has its own before it imports verl.
    """
    c = ctypes.CDLL(None)
    c.on_exit(ctypes.cast(c._exit, ctypes.c_void_p), None)


def _register_platform() -> None:
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from longhaul_trainer.verl.cpu.platform import CpuPlatform
    from longhaul_trainer.verl.cpu.visible_gpus import shown_again

    if PlatformRegistry.get("cpu") is not CpuPlatform:
        PlatformRegistry.register(platform="cpu")(CpuPlatform)
    shown_again()


def check_platform(device: str) -> None:
    """Make sure that verl took our platform; it hides the error of a plugin that fails to load.

    Raises:
        MachineError: If a run on the CPU would be verl's idea of a GPU run.
    """
    from verl.plugin.platform import get_platform

    found = get_platform().device_name
    if device == "cpu" and found != "cpu":
        raise MachineError(
            f"verl did not load the plugin `longhaul` and chose the platform {found!r}; "
            "install the workspace again with `uv sync`"
        )


register()
