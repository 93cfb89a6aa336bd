"""Stands where Ray's dashboard agent would: it serves nothing, and says that it does not.

Ray's node waits 15 s, and no longer, for the ports of its agent, which imports for 5 s on an idle
machine. As in Ray's minimal installation none of them is in use.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")
NOT_IN_USE = "-1"


def main(arguments: Sequence[str]) -> None:
    """Write the ports, and live until the node is gone.

    Args:
        arguments: As the agent takes them: `--session-dir=…`, `--node-id=…` and others.
    """
    given = dict(one.split("=", 1) for one in arguments if "=" in one)
    folder, node = Path(given["--session-dir"]), given["--node-id"]
    for name in PORTS:
        unfinished = folder / f".{name}_{node}"
        unfinished.write_text(NOT_IN_USE, encoding="ascii")
        unfinished.replace(folder / f"{name}_{node}")
    while os.read(0, 4096):  # the node holds the other end
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
