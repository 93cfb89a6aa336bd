"""Tests for `longhaul_trainer.preflight.machine`."""

from pathlib import Path

import psutil
import pytest

from longhaul_trainer.preflight.machine import memory_available

MIB = 2**20


def control_group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="ascii")


V2 = ("", "memory.max", "memory.current", "")
V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


@pytest.mark.parametrize(("folder", "limit", "usage", "prefix"), [V2, V1], ids=["v2", "v1"])
def test_pages_of_files_are_free_within_a_container(
    folder: str, limit: str, usage: str, prefix: str, tmp_path: Path
) -> None:
    """A container that has read a model's files holds them until memory is asked for."""
    held = f"anon {20 * MIB}\n{prefix}inactive_file {50 * MIB}\n{prefix}active_file {9 * MIB}\n"
    control_group(
        tmp_path / folder,
        {limit: f"{100 * MIB}\n", usage: f"{90 * MIB}\n", "memory.stat": held},
    )
    assert memory_available(groups=tmp_path) == (100 - 90 + 50 + 9) * MIB


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    control_group(tmp_path, {"memory.max": "max\n", "memory.current": "1\n", "memory.stat": ""})
    assert 0 < memory_available(groups=tmp_path) <= psutil.virtual_memory().total
