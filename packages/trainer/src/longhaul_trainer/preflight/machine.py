"""What this machine has: memory, processors, limits. What a run takes is in `resources`."""

import os
from pathlib import Path

import psutil

__all__ = ["memory_available", "num_processors"]


def memory_available(*, groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that a program may take now, within the container's limit, if it has one.

    Pages of files count as free: the kernel drops them when memory is asked for.

    Args:
        groups: Where the kernel shows control groups, of either version.
    """
    available = psutil.virtual_memory().available
    for folder, limit_file, usage_file, cache in (
        (groups, "memory.max", "memory.current", ("active_file", "inactive_file")),
        (
            groups / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ("total_active_file", "total_inactive_file"),
        ),
    ):
        try:
            limit = (folder / limit_file).read_text(encoding="ascii").strip()
            usage = (folder / usage_file).read_text(encoding="ascii").strip()
            counts = (folder / "memory.stat").read_text(encoding="ascii").split()
        except OSError:
            continue
        if limit.isdigit() and usage.isdigit():
            held = dict(zip(counts[::2], counts[1::2], strict=True))
            reclaimable = sum(int(held.get(name, 0)) for name in cache)
            available = min(available, int(limit) - int(usage) + reclaimable)
    return available


def num_processors() -> float:
    """Processors that this process may use, within the container's quota."""
    count = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return min(count, int(quota) / int(period)) if quota.isdigit() else count
