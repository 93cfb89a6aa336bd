"""The Java process in which ScienceWorld's worlds live: one for a process of Python, while used.

py4j talks to it over loopback with a token. Java watches its standard input and ends when the pipe
breaks, so it does not outlive a Python that was killed. It holds several worlds at once.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from longhaul_core.errors import MachineError
from longhaul_envs.extras import required

__all__ = ["JavaProcess", "java_program", "release", "shared"]

_OPTIONS = (
    # The simulator keeps things in sets, in the order of identity hashes, and Java draws those by
    # chance: a room would list its things in another order each time, and heat would flow in that
    # order. Constant hashes leave the order in which things were put there.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    "-Xmx1g",
    # Java's other threads would fight with the agents for the processors.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)

_CLOSE_SECONDS = 10

_lock = threading.Lock()
_process: "JavaProcess | None" = None
_num_users = 0


def java_program() -> str:
    """The path of `java`: that of JAVA_HOME, or else the one on the PATH.

    Raises:
        MachineError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=None if home is None else str(Path(home) / "bin"))
    if program is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME, {home!r}"
        raise MachineError(
            f"ScienceWorld needs a Java runtime, and there is no `java` {where}; install one, e.g. "
            "by `apt-get install default-jre-headless`"
        )
    return program


def shared() -> "JavaProcess":
    """This process's Java, started if it does not run; each call is undone by one of `release`.

    Raises:
        ConfigError: The extra is not installed.
        MachineError: There is no Java runtime, or it does not start.
    """
    global _process, _num_users
    with _lock:
        if _process is None or not _process.is_running or _process.owner != os.getpid():
            _process, _num_users = JavaProcess(), 0
        _num_users += 1
        return _process


def release(used: "JavaProcess") -> None:
    """End the Java that `shared` returned, if this was the last who used it."""
    global _process, _num_users
    with _lock:
        if used is not _process:  # it had died, and others use its successor
            used.close()
            return
        _num_users -= 1
        if _num_users == 0:
            _process = None
            used.close()


class JavaProcess:
    """A running Java with ScienceWorld's classes."""

    def __init__(self) -> None:
        """Start it.

        Raises:
            ConfigError: The extra is not installed.
            MachineError: There is no Java runtime, or it does not start.
        """
        gateway: Any = required("py4j.java_gateway", "scienceworld")
        constants: Any = required("scienceworld.constants", "scienceworld")
        program = java_program()
        # ScienceWorld writes `object_type_ids.tsv` where it is started.
        self._folder = tempfile.mkdtemp(prefix="longhaul-scienceworld-")
        try:
            port, token, self._process = gateway.launch_gateway(
                classpath=constants.JAR_PATH,
                javaopts=list(_OPTIONS),
                java_path=program,
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
                cwd=self._folder,
            )
        except (OSError, ValueError) as error:  # it printed no port
            shutil.rmtree(self._folder)
            raise MachineError(
                f"the Java runtime {program} does not start; `{program} -version` says why"
            ) from error
        self.owner = os.getpid()
        self._gateway: Any = gateway.JavaGateway(
            gateway_parameters=gateway.GatewayParameters(
                port=port, auth_token=token, auto_field=True, auto_convert=True
            )
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def new_world(self) -> Any:  # noqa: ANN401  an object of Java's
        """A `PythonInterface` of ScienceWorld's own; see its wheel's `scienceworld.py`."""
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        if self.owner != os.getpid():
            return  # a fork's copy: the process is its parent's
        self._gateway.shutdown()
        self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder)
