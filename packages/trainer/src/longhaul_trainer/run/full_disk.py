"""A full disk, however a library reports it: which disk, and what to do.

Python says it by a number. Torch, safetensors and Ray say it in texts of their own, and Ray
wraps what a worker raised.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from longhaul_core.errors import LonghaulError, MachineError
from longhaul_trainer.config import RunConfig
from longhaul_trainer.run.directory import RunDirectory

MIB = 2**20

SIGNS = (
    "no space left on device",
    "disk quota exceeded",
    "local disk is full",  # Ray
    # torch.save counts what it wrote, and finds less in the file
    "pytorchstreamwriter failed writing",
    "inline_container.cc",
)
"""Of a disk that is full, in lower case."""

ADVICE = {
    "checkpoints": "free space there, or lower checkpoint.keep_last",
    "the run's folder": "free space there",
    "the store": "free space there",
    "temporary files": "free space there, or set TMPDIR and RAY_TMPDIR to a disk with space",
    "shared memory": "give /dev/shm more, see `trainer doctor`",
}


def says_full(error: BaseException) -> bool:
    """Whether this error, or one that it was raised from or wraps, says that a disk is full."""
    return any(_is_sign(each) for each in _chain(error))


def as_full_disk(
    error: BaseException, *, run: RunDirectory, config: RunConfig, doing: str = ""
) -> MachineError | None:
    """The error by cause, path, free space and what to do; None if no disk was full.

    Args:
        error: Of another's code. An error of ours has its own message already.
        run: The run that it ended.
        config: Of the run.
        doing: What the run was doing, e.g. `"checkpoint"`.
    """
    if isinstance(error, LonghaulError) or not says_full(error):
        return None
    places = _places(run, config)
    name = "checkpoints" if doing == "checkpoint" else _fullest(places)
    usage = shutil.disk_usage(places[name])
    during = f" in stage {doing!r}" if doing else ""
    return MachineError(
        f"the disk is full{during}: {places[name]} ({name}) has {usage.free / MIB:,.1f} MiB free "
        f"of {usage.total / MIB:,.0f}; {ADVICE[name]}, then `trainer resume {run.run_id}` goes on "
        "from the last checkpoint"
    )


class FullDisksExplained:
    """Raises an error that escapes its block and reports a full disk as `as_full_disk` of it."""

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        self._run = run
        self._config = config

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        explained = (
            None if error is None else as_full_disk(error, run=self._run, config=self._config)
        )
        if explained is not None:
            raise explained from error


def _is_sign(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    lowered = str(error).lower()
    return any(sign in lowered for sign in SIGNS)


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseException) and each not in chain:
            chain.append(each)
            # Ray keeps what a worker raised under a name of its own.
            waiting += [each.__cause__, each.__context__, getattr(each, "cause", None)]
    return chain


def _places(run: RunDirectory, config: RunConfig) -> Mapping[str, Path]:
    """Where a run writes, by what is there."""
    places = {
        "checkpoints": run.checkpoints,
        "the run's folder": run.path,
        "temporary files": Path(tempfile.gettempdir()),
        "shared memory": Path("/dev/shm"),
    }
    if "://" not in config.store:
        places["the store"] = Path(config.store).absolute().parent
    return {name: path for name, path in places.items() if path.is_dir()}


def _fullest(places: Mapping[str, Path]) -> str:
    return min(places, key=lambda name: shutil.disk_usage(places[name]).free)
