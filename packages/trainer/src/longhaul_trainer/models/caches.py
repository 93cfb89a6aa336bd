"""Where this program and its libraries keep what they can write again: models, compiled kernels.

Most of it goes below `$XDG_CACHE_HOME`, or `~/.cache`. A container may have a home that cannot be
written, or a user id without an account and so without a home; everything then goes to one folder
of that user's below the folder of temporary files. Nothing here imports a library that looks.
"""

import getpass
import os
import tempfile
from pathlib import Path

from longhaul_core.errors import MachineError

__all__ = ["cache_folder", "home_is_writable", "prepare_caches"]

BESIDE_THE_CACHES = {
    "CUDA_CACHE_PATH": "nv",
    "FLASHINFER_WORKSPACE_BASE": "",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "TRITON_HOME": "",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "VLLM_CONFIG_ROOT": "vllm-config",
}
"""Variables of what writes into the home and does not ask `XDG_CACHE_HOME`; the place of each."""


def cache_folder() -> Path:
    """The first of the possible folders that can be written; it may not exist yet.

    Raises:
        MachineError: If none can.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = _home()
    temporary = Path(tempfile.gettempdir()) / f"longhaul-cache-{os.getuid()}"
    folders = [Path(given)] if Path(given).is_absolute() else []
    folders += [] if home is None else [home / ".cache"]
    for folder in folders:
        if _is_writable(folder):
            return folder
    if _is_writable(temporary) and _is_ones_own(temporary):
        return temporary
    tried = ", ".join(str(folder) for folder in (*folders, temporary))
    raise MachineError(
        f"no folder for caches can be written, of {tried}; name one that can with XDG_CACHE_HOME"
    )


def prepare_caches() -> None:
    """Have this process and all that it starts write there, and know its user by some name.

    Where the home can be written no variable changes but one that names a folder that cannot. Where
    no folder can be written it is left to whoever needs one to say so.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # torch asks for it as well
        os.environ["USER"] = f"uid-{os.getuid()}"
    home = _home()
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (MachineError, OSError):
        return
    if home is not None and folder == home / ".cache":
        os.environ.pop("XDG_CACHE_HOME", None)
    else:
        os.environ["XDG_CACHE_HOME"] = str(folder)
    if home_is_writable():
        return
    for name, place in BESIDE_THE_CACHES.items():
        os.environ.setdefault(name, str(folder / place))
    if home is None:
        os.environ["HOME"] = str(folder)


def home_is_writable() -> bool:
    """Whether there is a home, and files can be made in it."""
    home = _home()
    return home is not None and _is_writable(home)


def _home() -> Path | None:
    """The user's home, which may not exist; None if neither `HOME` nor an account says it."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there, or the folder itself."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if _is_seen(place))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _is_seen(place: Path) -> bool:
    """Whether it exists; False below a folder of somebody else's that cannot be entered."""
    try:
        return place.exists()
    except PermissionError:
        return False


def _is_ones_own(folder: Path) -> bool:
    """Whether nobody else has made it: anybody may make folders beside temporary files."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return True
    return folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid()
