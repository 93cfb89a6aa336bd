"""How many descriptors a process may hold open (Linux, `RLIMIT_NOFILE`).

A login's soft limit is 1,024, for programs that still wait by `select()`; its hard limit is what it
may have. Our own processes hold a socket to each environment and to each connection, and never call
`select()`, so they take what they may have. What belongs to the user gets the user's own.
"""

import os
import resource

__all__ = ["raise_open_files", "users_open_files"]

USERS_SOFT_LIMIT = "LONGHAUL_OPEN_FILES"
"""Variable: the soft limit before it was raised, for processes further down."""


def raise_open_files() -> None:
    """Raise the soft limit of this process, and of what it starts, to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        os.environ.setdefault(USERS_SOFT_LIMIT, str(soft))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def users_open_files() -> tuple[int, int]:
    """The soft and hard limit that programs of the user's are to have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return int(os.environ.get(USERS_SOFT_LIMIT, soft)), hard
