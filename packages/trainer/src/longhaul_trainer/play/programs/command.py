"""A command that plays an episode: a process tree of its own, bounded, and ended whole."""

import asyncio
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from longhaul_core.addresses import direct
from longhaul_core.errors import (
    ConfigError,
    EnvironmentFailure,
    ProgramFailure,
    ProgramLimit,
    ProgramTimeout,
)
from longhaul_core.gym.supervised import ForkServer, WorkerProcess
from longhaul_core.types import Task
from longhaul_trainer.gateway.task_data import task_data
from longhaul_trainer.play.programs import supervisor
from longhaul_trainer.play.programs.program import Endpoint, Leavings
from longhaul_trainer.play.programs.supervisor import End, Order, Report

__all__ = ["CommandProgram", "passed_on"]

PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)
"""Variables of the trainer's own environment that a command gets, beside `LC_…`; all others may
hold secrets, and a command that needs one is given it by name (`pass_environ`)."""

RESERVED = re.compile(
    r"(OPENAI|ANTHROPIC|GOOGLE|GEMINI|GOOGLE_GEMINI|AZURE|AZURE_OPENAI|HOSTED_VLLM|LLM)"
    r"_(API_KEY|BASE_URL|API_BASE|AUTH_TOKEN|ENDPOINT)"
    r"|(LONGHAUL|AGL)_\w+"
)
"""Variables that are the gateway's to set."""

_OF_TASK = re.compile(r"\{(\{\w+(?:\.\w+)*\}|\w+(?:\.\w+)*)\}")
"""A key of the task in braces; in two pairs of them it stands for itself in one."""
"""In a variable: a key of the task, and the way within it."""

_END_SECONDS = supervisor.GRACE_SECONDS + 10.0
"""For a supervisor to end what it keeps, before it is killed."""

_BEYOND = {
    End.MEMORY: ("max_memory_bytes", "its processes held {}"),
    End.PROCESSES: ("max_processes", "it had {}"),
    End.OUTPUT: ("max_output_bytes", "it printed {}"),
}


class CommandProgram:
    """A command, started anew for each episode. A `Program`.

    It gets the episode's task as a JSON object on standard input and in the file
    `LONGHAUL_TASK_FILE`, and the gateway's variables. `TMPDIR` is a folder of the episode's own.
    It is no sandbox: a command has the rights of the user that trains.
    """

    def __init__(  # noqa: PLR0913 - settings of a run
        self,
        command: Sequence[str],
        *,
        working_directory: Path | None = None,
        environ: Mapping[str, str] | None = None,
        pass_environ: Sequence[str] = (),
        deadline_seconds: float = 3600.0,
        max_memory_bytes: int | None = None,
        max_processes: int | None = None,
        max_output_bytes: int = 100_000_000,
    ) -> None:
        """Describe it; nothing is started yet.

        Args:
            command: Program and arguments. One that is the relative path of a file here is made
                absolute, since the program has another working folder.
            working_directory: Where every episode's program works; None for a temporary folder of
                each episode's own.
            environ: Environment variables beside those that are passed on and the gateway's.
                `{question}` in one stands for what the task has under that key, as text or as
                JSON, `{people.0.name}` for what is within, and `{{question}}` for `{question}`.
            pass_environ: Names of further variables of the trainer's own that are passed on, such
                as the key of a service that the program uses.
            deadline_seconds: For the program as a whole, above 0.
            max_memory_bytes: Most resident memory of all its processes, at least 1; None for no
                limit. It is looked at four times a second.
            max_processes: Most processes at once, at least 1; None for no limit.
            max_output_bytes: Most bytes printed, at least 1.

        Raises:
            ConfigError: A number is out of range, a variable that is to be passed on is not set, or
                `environ` sets one of the gateway's.
        """
        problems = [] if command else ["command must name a program, got an empty list"]
        if not (math.isfinite(deadline_seconds) and deadline_seconds > 0):
            problems.append(
                f"deadline_seconds must be finite and greater than 0, got {deadline_seconds}"
            )
        problems += [
            f"{name} must be at least 1, got {value}"
            for name, value in (
                ("max_memory_bytes", max_memory_bytes),
                ("max_processes", max_processes),
                ("max_output_bytes", max_output_bytes),
            )
            if value is not None and value < 1
        ]
        problems += [
            f"environ sets {name}, which is the gateway's to set; leave it out"
            for name in (*(environ or {}), *pass_environ)
            if RESERVED.fullmatch(name)
        ]
        problems += [
            f"pass_environ names {name}, which is not set here; set it, or leave it out"
            for name in pass_environ
            if name not in os.environ
        ]
        if problems:
            raise ConfigError("\n".join(problems))
        self._command = tuple(
            str(Path(part).absolute()) if _is_relative_file(part) else part for part in command
        )
        self._working_directory = working_directory and working_directory.absolute()
        self._environ = {
            **passed_on(os.environ),
            **{name: os.environ[name] for name in pass_environ},
            "PYTHONUNBUFFERED": "1",
        }
        self._own_environ = dict(environ or {})
        self._deadline_seconds = deadline_seconds
        self._max_memory_bytes = max_memory_bytes
        self._max_processes = max_processes
        self._max_output_bytes = max_output_bytes
        self._server: ForkServer | None = None
        self._folder: str | None = None
        self._starting = asyncio.Lock()

    def check(self) -> None:
        """See `Program.check`: the program is there and executable, the working folder is there."""
        problems: list[str] = []
        program, folder = self._command[0], self._working_directory
        if folder is not None and not folder.is_dir():
            problems.append(f"working_directory {str(folder)!r} is no folder")
        path = (self._environ | self._own_environ).get("PATH", os.defpath)
        if shutil.which(program, path=path) is None:
            if Path(program).is_file():
                reason = f"{program!r} is not executable; chmod +x it, or name its interpreter"
            else:
                reason = f"there is no program {program!r}, on PATH or as a path"
            problems.append(f"command {list(self._command)}: {reason}")
        if problems:
            raise ConfigError("\n".join(problems))

    @asynccontextmanager
    async def run(
        self, task: Task, *, endpoint: Endpoint, enough: asyncio.Event | None = None
    ) -> AsyncGenerator[Leavings]:
        """See `Program.run`."""
        data = task_data(task)
        own = {name: _filled(text, data, name) for name, text in self._own_environ.items()}
        environ = {**self._environ, **endpoint.environ, **own}
        order = Order(
            command=self._command,
            environ={**environ, **direct(environ, endpoint.host)},
            task=json.dumps(data),
            working_directory=self._working_directory and str(self._working_directory),
            deadline_seconds=self._deadline_seconds,
            max_memory_bytes=self._max_memory_bytes,
            max_processes=self._max_processes,
            max_output_bytes=self._max_output_bytes,
        )
        try:
            worker = await self._spawned()
        except EnvironmentFailure as error:
            raise ProgramFailure(f"starting {self._command[0]!r}: {error}") from error
        asking = asyncio.ensure_future(worker.ask(supervisor.ORDER.dump_json(order)))
        try:
            await _until(asking, enough, seconds=self._deadline_seconds + _END_SECONDS)
            if not asking.done():
                worker.shutdown()  # the supervisor ends the command, and reports
                await asyncio.wait({asking}, timeout=_END_SECONDS)
            yield self._leavings(asking, worker)
        finally:
            await _dismissed(worker, asking)

    async def close(self) -> None:
        """See `Program.close`."""
        async with self._starting:
            await self._stop()

    async def _spawned(self) -> WorkerProcess:
        async with self._starting:
            if self._server is not None and not self._server.running():
                await self._stop()
            if self._server is None:
                self._folder = self._folder or tempfile.mkdtemp(prefix="longhaul-programs-")
                target = f"{supervisor.__name__}:{supervisor.prepare.__name__}"
                self._server = await ForkServer.start(target, self._folder)
            server = self._server
        return await server.spawn()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        folder, self._folder = self._folder, None
        if server is not None:
            await server.stop()
        if folder is not None:  # the server has removed it, unless it was killed
            await asyncio.to_thread(supervisor.remove, folder)

    def _leavings(self, asking: asyncio.Future[bytes], worker: WorkerProcess) -> Leavings:
        """What a command left that ended, or was to end; the other ways to end are raised."""
        if not asking.done():
            worker.kill("was killed: the command could not be ended")
            raise ProgramTimeout(
                f"the command could not be ended within {_END_SECONDS:g} s of its deadline"
            )
        try:
            answer = asking.result()
        except EnvironmentFailure as error:
            raise ProgramFailure(f"what watched the command is gone: {error}") from error
        except ValueError as error:  # a task that is longer than messages may be
            raise ProgramFailure(f"starting {self._command[0]!r}: {error}") from error
        report = supervisor.REPORT.validate_json(answer)
        match report.end:
            case End.NOT_STARTED:
                raise ProgramFailure(f"starting {self._command[0]!r}: {report.message}")
            case End.DEADLINE:
                raise ProgramTimeout(
                    f"the command did not end within {self._deadline_seconds:g} s{_ending(report)}"
                )
            case End.MEMORY | End.PROCESSES | End.OUTPUT:
                setting, what = _BEYOND[report.end]
                limit: int = getattr(self, f"_{setting}")
                raise ProgramLimit(
                    f"{what.format(report.message)}; {setting} = {limit:,}{_ending(report)}"
                )
            case End.ITSELF | End.OWNER:
                return Leavings(
                    printed=report.printed,
                    output=report.output,
                    exit_code=report.exit_code,
                    folder=Path(report.folder),
                )


def _within(value: object) -> Mapping[str, object]:
    """What a value of a task's JSON has, by keys or by places from 0."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return {str(place): entry for place, entry in enumerate(entries)}


def _filled(text: str, data: Mapping[str, object], name: str) -> str:
    """A variable with what the task has in the place of its keys.

    Raises:
        ProgramFailure: The task has none of this name.
    """

    def found(key: re.Match[str]) -> str:
        if key[1].startswith("{"):
            return key[1]
        value: object = data
        for part in key[1].split("."):
            try:
                value = _within(value)[part]
            except KeyError:
                raise ProgramFailure(
                    f"agent.environ.{name} = {text!r}: the task has no {key[1]!r}; it has "
                    f"{', '.join(map(repr, data)) or 'nothing'}"
                ) from None
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _OF_TASK.sub(found, text)


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the trainer's own variables a command gets; keys, tokens and addresses are not."""
    return {
        name: value
        for name, value in environ.items()
        if name in PASSED_ON or name.startswith("LC_")
    }


def _is_relative_file(part: str) -> bool:
    try:
        return not os.path.isabs(part) and Path(part).is_file()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False


async def _until(
    asking: asyncio.Future[bytes], enough: asyncio.Event | None, *, seconds: float
) -> None:
    """Wait for a report, for an event or for some time, whichever comes first."""
    ends = asyncio.ensure_future((enough or asyncio.Event()).wait())
    try:
        await asyncio.wait({asking, ends}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends.cancel()


async def _dismissed(worker: WorkerProcess, asking: asyncio.Future[bytes]) -> None:
    """Have a supervisor end what is left, and remove its folder; both are gone at the return."""
    worker.shutdown()
    try:
        await asyncio.wait({worker.ended}, timeout=_END_SECONDS)
    finally:
        worker.kill()
        (answer,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(answer, bytes):
            report = supervisor.REPORT.validate_json(answer)
            await asyncio.to_thread(supervisor.remove, report.own_folder)


def _ending(report: Report) -> str:
    """The end of what was printed, for a message."""
    if not report.num_output_bytes:
        return "; it printed nothing"
    return f"; the last of {report.num_output_bytes:,} bytes printed:\n{report.output}"
