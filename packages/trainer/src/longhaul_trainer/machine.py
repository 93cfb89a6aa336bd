"""What this machine has: memory, processors, limits. What a run takes is in `resources`."""

import os
from pathlib import Path

import psutil

__all__ = ["memory_available", "num_processors"]


def memory_available() -> int:
    """Bytes of memory that are free now, within the limit of the container, if there is one."""
    available = psutil.virtual_memory().available
    for limit_file, usage_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            limit = Path(limit_file).read_text(encoding="ascii").strip()
            usage = Path(usage_file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdigit() and usage.isdigit():
            available = min(available, int(limit) - int(usage))
    return available


def num_processors() -> float:
    """Processors that this process may use, within the container's quota."""
    count = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return min(count, int(quota) / int(period)) if quota.isdigit() else count
