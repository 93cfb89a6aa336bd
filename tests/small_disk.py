"""A small disk of its own, which a test can fill."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Generator[Path]:
    """An empty disk of this size, mounted at `folder` while the block runs.

    The test is skipped where the right to mount is missing.
    """
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs"]
    try:
        done = subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount`")
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(disk: Path) -> None:
    """Take from everybody, root too, the right to write on a disk of `small_disk`."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
