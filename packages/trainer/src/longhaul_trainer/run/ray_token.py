"""The token that Ray's ports ask for, in a file that no other user can read.

Ray makes the file where there is none, readable by whoever may enter the home folder; who has the
token runs code as the user of any Ray of his.
"""

import os
import secrets
import stat
from pathlib import Path

FROM_ELSEWHERE = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE")
"""Ray's variables; with one of them the user keeps the token, or has none."""


def ray_token_file() -> Path | None:
    """Where Ray keeps the token by itself; None where the user's variables say otherwise."""
    if any(name in os.environ for name in FROM_ELSEWHERE):
        return None
    return Path.home() / ".ray" / "auth_token"


def others_may_read(file: Path) -> bool:
    """Whether a file is there whose mode lets other users read it."""
    try:
        return bool(stat.S_IMODE(file.stat().st_mode) & 0o077)
    except OSError:
        return False


def keep_ray_token_private() -> None:
    """Make the file before Ray does, or take other users' permissions from it.

    A home folder that cannot be written is Ray's to report.
    """
    file = ray_token_file()
    if file is None:
        return
    try:
        file.parent.mkdir(exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if others_may_read(file):
            file.chmod(0o600)
    except OSError:
        return
    else:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(secrets.token_hex(32))
