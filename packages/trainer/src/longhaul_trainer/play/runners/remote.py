"""A program that runners play on other machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from longhaul_core.clock import now
from longhaul_core.errors import ProgramFailure, ProgramLimit, ProgramTimeout, RunnerLost
from longhaul_core.types import Task
from longhaul_trainer.gateway.task_data import task_data
from longhaul_trainer.play.programs.program import Endpoint, Leavings
from longhaul_trainer.play.runners.leases import (
    Lease,
    LeaseHandedBack,
    LeaseLate,
    LeaseOver,
    Leases,
    Offer,
)
from longhaul_trainer.play.runners.wire import End, Result

__all__ = ["RemoteProgram"]

_GRACE_SECONDS = 30.0
"""For a runner to end a program that is late, and to report it."""
_LATE_SECONDS = 1.0
"""For heartbeats that lie unread while this process was busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteProgram:
    """One episode's program, which a runner plays. A `Program`."""

    leases: Leases
    gateway: str
    """Address of the gateway that the program's variables have."""
    deadline_seconds: float
    """For the program as a whole, from the moment that a runner has it."""
    name: str = ""
    """Of the episode, in the store."""

    def check(self) -> None:
        """See `Program.check`: what is started is the runners' own."""

    @asynccontextmanager
    async def run(
        self, task: Task, *, endpoint: Endpoint, enough: asyncio.Event | None = None
    ) -> AsyncGenerator[Leavings]:
        """See `Program.run`.

        Raises:
            RunnerLost: The runner was not heard of for too long, or handed the episode back.
        """
        offer = Offer(
            task=json.dumps(task_data(task)),
            environ=lambda address: {
                name: address + value.removeprefix(self.gateway)
                if value.startswith(self.gateway)
                else value
                for name, value in endpoint.environ.items()
            },
            deadline_seconds=self.deadline_seconds,
            name=self.name,
            task_id=task.task_id,
        )
        try:
            with self.leases.offered(offer):
                lease = await self.leases.wait_taken(offer)
                result = await self._ended(lease, enough or asyncio.Event())
        except LeaseOver as error:
            lost = ProgramTimeout if isinstance(error, LeaseLate) else RunnerLost
            raise lost(str(error)) from error
        yield _leavings(result)

    async def close(self) -> None:
        """See `Program.close`."""

    async def _ended(self, lease: Lease, enough: asyncio.Event) -> Result:
        """What the program left.

        Raises:
            LeaseOver: The runner is lost, handed it back, or is late.
        """
        over = asyncio.create_task(enough.wait())
        late_at = now() + self.deadline_seconds + _GRACE_SECONDS
        try:
            while not lease.result.done():
                heard_at = lease.heard_at
                until = min(heard_at + self.leases.lost_seconds, late_at)
                waits = {lease.result} if lease.is_enough else {lease.result, over}
                await asyncio.wait(
                    waits,
                    timeout=max(0.0, until - now()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                lease.is_enough = over.done()
                if lease.result.done() or now() < until:
                    continue
                if until == late_at:
                    raise LeaseLate(
                        f"runner {lease.runner!r} did not end the program within "
                        f"{self.deadline_seconds:g} s and {_GRACE_SECONDS:g} s"
                    )
                await asyncio.wait({lease.result}, timeout=_LATE_SECONDS)
                if lease.heard_at == heard_at and not lease.result.done():
                    raise LeaseOver(
                        f"runner {lease.runner!r} was not heard of for "
                        f"{self.leases.lost_seconds:g} s"
                    )
        finally:
            over.cancel()
        result = lease.result.result()
        if result.end is End.HANDED_BACK:
            raise LeaseHandedBack(
                f"runner {lease.runner!r} handed the episode back: it was stopped"
            )
        return result


def _leavings(result: Result) -> Leavings:
    match result.end:
        case End.TIMEOUT:
            raise ProgramTimeout(result.message)
        case End.LIMIT:
            raise ProgramLimit(result.message)
        case End.FAILED:
            raise ProgramFailure(result.message)
        case _:
            return Leavings(
                printed=result.printed, output=result.output, exit_code=result.exit_code
            )
