"""Longhaul's one command: each word is handed to the program of an installed package.

longhaul view --demo      is  viewer --demo
longhaul api              is  longhaul-api
longhaul train @smoke     is  trainer train @smoke, as is every other word
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution

__all__ = ["main"]

PROGRAMS = {"view": ("longhaul-viewer", "viewer"), "api": ("longhaul-api", "longhaul-api")}
"""By word: the package, and its script that takes what follows."""
TRAINER = ("longhaul-trainer", "trainer")
"""Takes every other word itself."""


def main() -> None:
    """Hand over the process's command line, and exit with the program's code."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help", "help"):
        print(__doc__)  # noqa: T201
        sys.exit(0)
    package, script = PROGRAMS.get(words[0], TRAINER)
    try:
        scripts = distribution(package).entry_points
    except PackageNotFoundError:
        print(  # noqa: T201
            f"longhaul {words[0]}: the package {package} is not installed: "
            f"pip install --find-links FOLDER-OF-LONGHAUL'S-WHEELS {package}",
            file=sys.stderr,
        )
        sys.exit(3)
    (program,) = (one for one in scripts if (one.group, one.name) == ("console_scripts", script))
    sys.argv = [script, *(words[1:] if words[0] in PROGRAMS else words)]
    sys.exit(program.load()())
