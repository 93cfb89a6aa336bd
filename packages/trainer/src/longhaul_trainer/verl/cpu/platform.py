"""The machine's processors as a verl platform.

verl asks its platform for a device, a collective backend and memory figures. One
logical Ray "GPU" stands for one training worker here, because verl's resource pools
count only accelerators.
"""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase


class _CpuDeviceModule(ModuleType):
    """`torch.cpu` with the memory and random-state calls that verl makes on `torch.cuda`."""

    def __init__(self) -> None:
        super().__init__("longhaul_cpu_device")
        self.manual_seed = torch.manual_seed
        self.manual_seed_all = torch.manual_seed
        self.get_rng_state = torch.get_rng_state
        self.set_rng_state = torch.set_rng_state
        self.Event = torch.cpu.Event
        self.Stream = torch.cpu.Stream
        self.current_stream = torch.cpu.current_stream

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_name(self, device: object = None) -> str:
        return "cpu"

    def set_device(self, device: object) -> None:
        """There is one device."""

    def synchronize(self, device: object = None) -> None:
        """Work on the CPU is complete when its call returns."""

    def empty_cache(self) -> None:
        """The allocator keeps no cache of its own."""

    def ipc_collect(self) -> None:
        """Weights travel through shared memory, not device handles."""

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """The peak is the process's own and is not reset."""

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def memory_allocated(self, device: object = None) -> int:
        return psutil.Process().memory_info().rss

    def max_memory_allocated(self, device: object = None) -> int:
        return self.memory_allocated()

    def memory_reserved(self, device: object = None) -> int:
        return self.memory_allocated()

    def max_memory_reserved(self, device: object = None) -> int:
        return self.memory_allocated()


class CpuPlatform(PlatformBase):
    """verl's device interface for a machine without an accelerator."""

    def __init__(self) -> None:
        self._module = _CpuDeviceModule()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:  # noqa: ANN401  verl's interface says int
        """A `torch.device`, not an index: verl calls `model.to()` with it."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Work on the CPU is complete when its call returns."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The settings are CUDA's."""

    def empty_cache(self) -> None:
        """The allocator keeps no cache of its own."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        """One of the two that verl's pools count; `cluster` starts Ray with made-up ones."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def rollout_env_vars(self) -> dict[str, str]:
        """Let vLLM's engine process do its worker's part: one process less imports vLLM."""
        return {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}

    def is_ipc_supported(self) -> bool:
        """False: weights travel through shared memory."""
        return False

    # verl's abstract method is annotated as if it returned nothing.
    def nvtx_range(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, msg: str
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def profiler_start(self) -> None:
        """There is no device profiler."""

    def profiler_stop(self) -> None:
        """There is no device profiler."""

    def cudart(self) -> None:
        return None
