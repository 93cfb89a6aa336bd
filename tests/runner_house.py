"""Where runners play episodes in tests: a real gateway, real runner processes, a fake policy."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from longhaul_core.rollout import EpisodeOutcome
from longhaul_core.store.records import LeaseOutcome
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.gateway.settings import GatewaySettings
from longhaul_trainer.play.runners.leases import Lease, Leases, Offer
from longhaul_trainer.play.runners.remote import RemoteProgram
from longhaul_trainer.play.runners.routes import runner_routes
from longhaul_trainer.play.runners.wire import TOKEN_VARIABLE
from program_house import COMMAND, Choices, House

TOKEN = "a-token-of-the-tests-alone"
WHOLE = "from longhaul_trainer.cli.main import main; main()"
QUICK = "import typer; from longhaul_trainer.cli.runner import runner; typer.run(runner)"
"""The command without the others, whose imports take longer than an episode."""
LOST_SECONDS = 4.0


class RunningRunner:
    """A runner's process."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it printed."""
        return self._log.read_text(encoding="utf-8")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ended(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(seconds)


@contextmanager
def running(
    address: str, *options: str, log: Path, token: str = TOKEN, python: str | None = None
) -> Generator[RunningRunner]:
    """A runner of the command line, until the block ends.

    Args:
        address: Of a gateway.
        options: Of the command.
        log: What it prints.
        token: Of the runner.
        python: One that is quick to start and runs the whole command line; None for a process
            that signals reach and whose programs are below it, of the one command.
    """
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [
                *([python, "-c", WHOLE, "runner"] if python else [sys.executable, "-c", QUICK]),
                *["--connect", address, *options, "--", *COMMAND],
            ],
            stdout=file,
            stderr=file,
            env={**os.environ, TOKEN_VARIABLE: token, "COLUMNS": "200"},
        )
    try:
        yield RunningRunner(process, log)
    finally:
        process.kill()  # nobody would answer it here: the house's event loop stands still
        process.wait()


class RemoteHouse(House):
    """A house whose programs runners play."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.noted: list[tuple[str, LeaseOutcome | None]] = []
        """Runners whose leases began, and how they ended."""
        self.leases = Leases(lost_seconds=LOST_SECONDS, on_change=self._note)
        self.gateway = Gateway(
            settings=GatewaySettings(stop_seconds=1.0),
            routes=runner_routes(self.leases, token=TOKEN, gateways=lambda reached: (reached,)),
        )

    def _note(self, offer: Offer, lease: Lease, outcome: LeaseOutcome | None) -> None:
        self.noted.append((lease.runner, outcome))

    async def play_remotely(
        self,
        fault: str,
        argument: object = None,
        *,
        deadline_seconds: float = 60.0,
        sample_index: int = 0,
        **choices: Unpack[Choices],
    ) -> EpisodeOutcome:
        """An episode that a runner plays."""
        choices["program"] = RemoteProgram(
            leases=self.leases,
            gateway=self.gateway.address,
            deadline_seconds=deadline_seconds,
            name=f"{fault}-{sample_index}",
        )
        return await self.play(fault, argument, sample_index=sample_index, **choices)


async def until(what: str, holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something of another process holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


def waiting_runners(leases: Leases) -> list[str]:
    """Names of the runners that wait, one for each episode that it waits for."""
    return [one.runner for one in leases._waiting.values()]  # pyright: ignore[reportPrivateUsage]
