"""Starting a zygote, and the file that stands in for Python."""

import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Zygote"]

_BACKLOG = 64


class Zygote:
    """A process that imports modules, and forks where `stand_in` is started as Python.

    It imports beside whatever its owner does; stand-ins that are started before it is done
    wait for it. It inherits the owner's environment and output, and dies with the owner.
    """

    def __init__(
        self, modules: Sequence[str], *, folder: Path, fork_of: "Zygote | None" = None
    ) -> None:
        """Start it.

        Args:
            modules: What programs find imported.
            folder: Where the stand-in's file is written.
            fork_of: One that has imported other modules, which programs find too. What they start
                by `multiprocessing` is forked of that one.
        """
        address = f"longhaul-{secrets.token_hex(16)}"
        folder.mkdir(parents=True, exist_ok=True)
        self.stand_in = folder / "python"
        """An executable file to be started in the place of the Python interpreter."""
        script = Path(__file__).with_name("stand_in.py")
        self.stand_in.write_text(
            f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", str(script), address])} "$@"\n',
            encoding="utf-8",
        )
        self.stand_in.chmod(0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # An abstract name leaves no file behind; who connects is checked by user.
            listener.bind("\0" + address)
            listener.listen(_BACKLOG)
            self._process = subprocess.Popen(
                [
                    sys.executable if fork_of is None else str(fork_of.stand_in),
                    "-P",
                    "-m",
                    "longhaul_trainer.verl.cpu.zygote.server",
                    str(os.getpid()) if fork_of is None else "0",
                    str(listener.fileno()),
                    str(self.stand_in if fork_of is None else fork_of.stand_in),
                    *modules,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        """End it, and whatever it forked and is still there."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """The interpreter itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()
