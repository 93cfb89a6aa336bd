"""`trainer runner`: play a run's episodes on this machine, until Ctrl-C or SIGTERM."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from longhaul_core.errors import ConfigError
from longhaul_trainer.cli.arguments import console_of

if TYPE_CHECKING:
    from longhaul_trainer.play.runners.runner import Runner


def runner(  # noqa: PLR0913  options of a command
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What plays an episode.")
    ],
    *,
    connect: Annotated[
        list[str],
        typer.Option(
            metavar="URL", help="A gateway of the run, which names the others. May be repeated."
        ),
    ],
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="What the run calls it.", show_default="HOST:PID")
    ] = None,
    working_directory: Annotated[
        Path | None,
        typer.Option(help="Where commands are started.", show_default="a new folder for each"),
    ] = None,
    pass_environ: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Environment variable that commands get too. May be repeated."
        ),
    ] = None,
    max_memory_bytes: Annotated[
        int | None, typer.Option(min=1, help="Most memory of a command and all that it starts.")
    ] = None,
    max_processes: Annotated[
        int | None, typer.Option(min=1, help="Most processes of a command.")
    ] = None,
    max_output_bytes: Annotated[
        int, typer.Option(min=1, help="Most that a command may print.")
    ] = 100_000_000,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="How long episodes may go on after SIGTERM or Ctrl-C."),
    ] = 30.0,
    unreachable_seconds: Annotated[
        float | None,
        typer.Option(min=1, help="End when no gateway answers for so long.", show_default="never"),
    ] = None,
) -> None:
    """Play episodes of a run whose agent is `remote`, by a command of this machine.

    The token is read from LONGHAUL_RUNNER_TOKEN. After SIGTERM or Ctrl-C no further episode is
    begun, and those that last too long are handed back; a second one hands all back at once.
    """
    from longhaul_trainer.play.programs.command import CommandProgram
    from longhaul_trainer.play.runners.runner import Runner
    from longhaul_trainer.play.runners.wire import TOKEN_VARIABLE

    def program_of(deadline_seconds: float) -> CommandProgram:
        return CommandProgram(
            command,
            working_directory=working_directory,
            pass_environ=pass_environ or (),
            deadline_seconds=deadline_seconds,
            max_memory_bytes=max_memory_bytes,
            max_processes=max_processes,
            max_output_bytes=max_output_bytes,
        )

    program_of(1.0).check()
    console = console_of("stderr")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    own_name = name or f"{socket.gethostname()}:{os.getpid()}"
    made = Runner(
        _addresses(connect),
        program_of=program_of,
        name=own_name,
        token=os.environ.get(TOKEN_VARIABLE, ""),
        concurrency=concurrency,
        drain_seconds=drain_seconds,
        unreachable_seconds=unreachable_seconds,
    )
    console.print(f"runner [bold]{own_name}[/]: {concurrency} episodes at once")
    try:
        asyncio.run(_until_stopped(made))
    finally:
        console.print(f"played {made.num_played} episodes")


async def _until_stopped(made: "Runner") -> None:
    stop, at_once = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (at_once if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await made.run(stop=stop, at_once=at_once)


def _addresses(connect: Sequence[str]) -> list[str]:
    found: list[str] = []
    for url in connect:
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is no number
            fits = False
            parts = urlsplit("")
        if not fits or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise ConfigError(
                f"--connect {url!r} must be an address of a scheme, a host and a port alone, such "
                "as http://10.0.0.5:8400"
            )
        found.append(f"{parts.scheme}://{parts.netloc}")
    return found
