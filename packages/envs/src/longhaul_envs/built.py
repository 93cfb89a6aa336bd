"""Data that is made once on a machine and then only read: catalogues and search indexes.

A folder is made beside the place where it will be, under a lock, and renamed when it is whole.
Two processes that want it at once make it once; one that is killed leaves no half of it.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from longhaul_core.errors import MachineError

__all__ = ["built_once", "shared"]

_T = TypeVar("_T")
_OPENED: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()
_OPENING = Lock()


def built_once(target: Path, build: Callable[[Path], None]) -> Path:
    """The folder `target`, made by `build` if it is not there yet.

    Args:
        target: The folder. Its name should say what it was made from, since a folder that is
            there is not made again.
        build: Fills the empty folder that it is given. Where it raises, nothing stays.

    Returns:
        `target`, whole.

    Raises:
        MachineError: If nothing can be written there.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        opened = (target.parent / f".{target.name}.lock").open("w", encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"{target} cannot be made: {error.strerror}; name a folder that can be written in "
            "LONGHAUL_DATA"
        ) from error
    with opened as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when its holder dies
        if target.is_dir():
            return target
        unfinished = target.parent / f".{target.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # of one that was killed
        unfinished.mkdir()
        try:
            build(unfinished)
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return target


def shared(kind: Callable[..., _T], *arguments: Hashable) -> _T:
    """What `kind(*arguments)` opens, once in a process for all who hold it.

    It is closed, by its own `weakref.finalize` or its parts', when the last holder lets it go. A
    fork opens its own: connections and file positions are not shared across processes.
    """
    key = (os.getpid(), kind, *arguments)
    with _OPENING:
        opened: _T | None = _OPENED.get(key)
        if opened is None:
            opened = kind(*arguments)
            _OPENED[key] = opened
        return opened
