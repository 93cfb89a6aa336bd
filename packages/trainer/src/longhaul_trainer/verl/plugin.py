"""What verl loads in every one of its processes, through the entry-point group `verl.plugins`.

verl imports this module and calls nothing, so importing it is what registers. Off the
CPU platform it registers the learner's way to the engine alone: the few other subclasses of a GPU
run are registered where they are (`policy_worker`, `critic_worker`, `engine_server`,
`weight_transfer`).
"""

import importlib
import os
from typing import Any

from longhaul_core.errors import MachineError
from longhaul_trainer.verl.loopback import meet_in_a_file

PLATFORM_VARIABLE = "VERL_PLATFORM"
"""verl's own variable. `launch` sets it to `"cpu"` for runs without an accelerator."""


def register() -> None:
    """Register what this process may need. Safe to call twice."""
    if os.environ.get(PLATFORM_VARIABLE) == "cpu":
        _register_platform()  # first: what is imported below asks for the platform
    meet_in_a_file()
    rollouts: Any = importlib.import_module("verl.workers.rollout.base")
    adapter = "longhaul_trainer.verl.engine_updates.PrivateServerAdapter"
    rollouts._ROLLOUT_REGISTRY["vllm", "async"] = adapter


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
