"""Files that must not enter the repository: large ones, private keys, unmerged ones.

Called with paths it ends with a message if one of them is such a file; the pre-commit hook
does that for a commit, `tests/test_repository.py` for the whole repository.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

LARGEST_BYTES = 1_200_000
PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----")
CONFLICT = re.compile(rb"^(?:<{7} |>{7} )", re.MULTILINE)


def problems_of(path: Path) -> list[str]:
    """What keeps a file out of the repository, one line each."""
    size = path.stat().st_size
    if size > LARGEST_BYTES:
        return [f"{path}: {size:,} bytes, and {LARGEST_BYTES:,} is the most"]
    content = path.read_bytes()
    return [
        f"{path}: {what}"
        for pattern, what in ((PRIVATE_KEY, "a private key"), (CONFLICT, "a conflict mark"))
        if pattern.search(content)
    ]


def main(paths: Sequence[str]) -> None:
    """End with every problem of the files named.

    Raises:
        SystemExit: With the list, if there is one.
    """
    problems = [line for path in paths for line in problems_of(Path(path))]
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
