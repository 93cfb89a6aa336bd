"""What a run on a machine of its own listens at: loopback, and files in place of ports."""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longhaul_trainer.verl.private_folder import private_folder

LOOPBACK = "127.0.0.1"
VARIABLES = {
    "VLLM_HOST_IP": LOOPBACK,
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
STORES = "LONGHAUL_TORCH_STORES"
"""Variable: the folder where torch's processes find each other, in place of a port."""


@contextmanager
def on_loopback(folder: Path) -> Generator[None]:
    """Have what this process starts in the block listen where no other machine reaches it.

    The address of Ray's node is the machine's in the network, even where it is asked for another;
    only on systems where it takes no other nodes is it loopback, and so it is here. verl and
    TransferQueue have theirs from it.

    Ray's folders, which it makes writable for everybody, are behind one that nobody else enters;
    where the user names another by `RAY_TMPDIR` they are there, as all that the user has set stays.

    Args:
        folder: For files, which no other user can enter; it ends with the run.
    """
    wanted = VARIABLES | {"RAY_TMPDIR": str(private_folder()), STORES: str(folder)}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    constants: Any = importlib.import_module("ray._private.ray_constants")
    takes_others = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = takes_others
        for name in added:
            os.environ.pop(name, None)


def meet_in_a_file() -> None:
    """Have this worker's processes of torch meet in a file, if the run is on one machine.

    torch's store is otherwise a port that lets everybody read and write what is in it, and by what
    is in it the processes find each other.
    """
    folder, port = os.environ.get(STORES), os.environ.get("MASTER_PORT")
    if folder is not None and port is not None:
        group = f"{os.environ.get('WG_PREFIX', '')}-{port}".replace("/", "-")
        os.environ.setdefault("DIST_INIT_METHOD", f"file://{folder}/torch{group}")
