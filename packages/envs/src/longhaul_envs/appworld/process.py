"""AppWorld's process: its own interpreter, behind a fence as far as the system has one.

Code that a model wrote runs there. What holds it: an own process group and session, which are
killed at a deadline or on close; no environment variables but those named here; a limit of memory;
and, by util-linux's `unshare`, no network and a process namespace that ends with it. What does not
hold it: files. It runs as the user who trains, and only the package's own guards keep code from
the file system; and since the package evaluates in the same interpreter, code that breaks those
guards could forge a verdict. Where that matters, train as a user that owns nothing else.
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from longhaul_core.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout

__all__ = ["INSTALLING", "AppWorldProcess"]

INSTALLING = (
    "AppWorld pins pydantic 1.10, so it is installed in an environment of its own: `uv venv DIR`, "
    "`uv pip install --python DIR/bin/python appworld`, `DIR/bin/appworld install`, "
    "`DIR/bin/appworld download data --root ROOT`; then options "
    'python = "DIR/bin/python" and root = "ROOT"'
)
_DRIVER = Path(__file__).with_name("driver.py")
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
_NAMESPACES = (
    ("unshare", "--net", "--pid", "--fork", "--kill-child"),
    ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"),
)
_END_SECONDS = 5
_MAX_REPLY = 1 << 20
_LOG_TAIL = 2000


class AppWorldProcess:
    """A driver in AppWorld's interpreter. It starts at once and ends with `close`."""

    def __init__(self, *, python: str, root: Path, network: bool, memory_gib: int) -> None:
        """Start it.

        Args:
            python: Interpreter that has `appworld`.
            root: AppWorld's root, with its `data`.
            network: Whether code may reach the network.
            memory_gib: Most address space, in GiB.

        Raises:
            ConfigError: If there is no such interpreter, or the network cannot be kept from it.
        """
        if not python or shutil.which(python) is None:
            raise ConfigError(f"no interpreter at {python!r} for AppWorld. {INSTALLING}")
        fence = () if network else _fence()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        experiment = f"longhaul-{uuid4().hex}"
        self._outputs = root / "experiments" / "outputs" / experiment
        self._process = subprocess.Popen(
            [*fence, python, str(_DRIVER), str(memory_gib), experiment],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=root,
            env={
                **{name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                "APPWORLD_ROOT": str(root),
                "PYTHONUNBUFFERED": "1",
            },
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self._process.poll() is not None

    def ask(self, call: str, *, seconds: float, **arguments: object) -> Mapping[str, Any]:
        """What the driver replies.

        Args:
            call: `start`, `execute` or `evaluate`.
            seconds: Deadline; the process is killed at it.
            arguments: Of the call.

        Raises:
            EnvironmentTimeout: If there is no reply in time.
            EnvironmentFailure: If the process ended: by itself, or since the package raised.
            ConfigError: If it ended since its interpreter has no `appworld`.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(deadline=time.monotonic() + seconds)
        except (BrokenPipeError, EOFError) as error:
            self._kill()
            code, said = self._process.returncode, self._tail()
            if "No module named 'appworld'" in said:
                raise ConfigError(f"its interpreter has no appworld. {INSTALLING}") from error
            raise EnvironmentFailure(
                f"AppWorld's process ended with exit code {code} in {call}: {said}"
            ) from error
        if line is None:
            self._kill()
            raise EnvironmentTimeout(f"AppWorld did not answer {call} within {seconds:g} s")
        return cast("dict[str, Any]", json.loads(line))

    def close(self) -> None:
        """End the process and all that it started. Safe to call twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_SECONDS)
        self._kill()
        self._log.close()
        shutil.rmtree(self._outputs, ignore_errors=True)  # of a process that was killed

    def _line(self, *, deadline: float) -> bytes | None:
        """The next line; None at the deadline."""
        assert self._process.stdout is not None
        read = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk or len(read) > _MAX_REPLY:
                    raise EOFError
                read += chunk
        return read

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL))
        return self._log.read().decode(errors="replace").strip()


@cache
def _fence() -> tuple[str, ...]:
    """The command that runs another without network, as root or in a user namespace."""
    for command in _NAMESPACES:
        if shutil.which(command[0]) is not None:
            tried = subprocess.run([*command, "true"], capture_output=True, check=False)
            if tried.returncode == 0:
                return command
    raise ConfigError(
        "code in AppWorld cannot be kept from the network here: `unshare` of util-linux is "
        "missing, or namespaces are not allowed (e.g. in a container without CAP_SYS_ADMIN). "
        "With network = true it may reach whatever this machine reaches"
    )
