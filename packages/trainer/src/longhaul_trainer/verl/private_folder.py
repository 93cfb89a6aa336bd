"""A folder on this machine that no other user can enter: `longhaul-<uid>` among temporary files.

verl puts the sockets that weights are announced through under names that anybody can guess into
`/tmp`, and Ray makes its folders writable for everybody. What is in here is out of their reach,
whatever its own permissions.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from longhaul_core.errors import MachineError


def private_folder() -> Path:
    """The folder; the first to ask makes it, and it stays.

    Raises:
        MachineError: If somebody else has made it, or can enter it.
    """
    folder = Path(tempfile.gettempdir()) / f"longhaul-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if found.st_uid != os.getuid() or not private:
        raise MachineError(
            f"{folder} must be a folder of this user that no other can enter (mode 700), and it "
            f"belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}; remove it, "
            "or name another folder of temporary files by TMPDIR"
        )
    return folder
