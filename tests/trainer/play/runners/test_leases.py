"""Leases over hours: heartbeats, silence, lateness, and what the log and the store have of them."""

import asyncio
from collections.abc import Sequence

import pytest

from longhaul_core.clock import now
from longhaul_core.errors import ProgramTimeout, RunnerLost
from longhaul_core.store import LeaseRecord
from longhaul_core.types import Split, Task
from longhaul_trainer.gateway.exchange import CreditReport
from longhaul_trainer.play.programs.program import Endpoint, Leavings
from longhaul_trainer.play.runners.lease_log import LeaseLog
from longhaul_trainer.play.runners.leases import LeaseOver, Leases, Offer
from longhaul_trainer.play.runners.remote import RemoteProgram
from longhaul_trainer.play.runners.wire import End, Result
from virtual_time import in_virtual_time

LEASE = "a" * 32
TASK = Task(
    environment="file", version="1", data_hash="", task_id="t", seed=0, split=Split.TRAIN, data="{}"
)


def offer_of(name: str) -> Offer:
    return Offer(
        task="{}",
        environ=lambda address: {},
        deadline_seconds=1,
        name=f"run/0/train/1/0/0/{name}",
        task_id="t",
    )


async def played(leases: Leases, *, deadline_seconds: float) -> Leavings:
    """What a program leaves that a runner plays."""

    def report(credit: CreditReport) -> None:
        raise AssertionError("a runner's program reports by HTTP")

    program = RemoteProgram(
        leases=leases, gateway="http://127.0.0.1:1", deadline_seconds=deadline_seconds
    )
    endpoint = Endpoint(environ={}, report=report, report_reward=lambda value, success: None)
    async with program.run(TASK, endpoint=endpoint) as left:
        return left


async def beaten(leases: Leases, *, seconds: int) -> None:
    """Take a lease, and send a heartbeat at once and after each of so many seconds."""
    await leases.take(LEASE, runner="r", address="http://h", wait_seconds=1)
    assert leases.beat([LEASE]).over == {}
    for _ in range(seconds):
        await asyncio.sleep(1)
        assert leases.beat([LEASE]).over == {}


@in_virtual_time
async def test_heartbeats_hold_a_lease_and_silence_ends_it() -> None:
    leases, began = Leases(lost_seconds=30), now()
    playing = asyncio.create_task(played(leases, deadline_seconds=1000))

    await beaten(leases, seconds=600)

    with pytest.raises(RunnerLost, match=r"runner 'r' was not heard of for 30 s"):
        await playing
    assert now() - began == pytest.approx(600 + 30 + 1)  # a second for heartbeats that lie unread
    with pytest.raises(LeaseOver, match="was not heard of"):
        leases.finish(LEASE, Result(end=End.LEFT))


@in_virtual_time
async def test_a_runner_that_does_not_end_a_late_program_loses_its_lease() -> None:
    leases, began = Leases(lost_seconds=30), now()
    playing = asyncio.create_task(played(leases, deadline_seconds=100))

    await beaten(leases, seconds=129)

    with pytest.raises(ProgramTimeout, match="did not end the program within 100 s and 30 s"):
        await playing
    assert now() - began == pytest.approx(130)


@in_virtual_time
async def test_a_held_lease_is_recorded_every_30_s_however_many_others_come_and_go() -> None:
    began, written = now(), list[tuple[float, str]]()

    async def commit(records: Sequence[LeaseRecord]) -> None:
        written.extend((now() - began, record.lease_id) for record in records)

    log = LeaseLog(commit, run_id="run", attempt=0)
    leases = Leases(lost_seconds=60, on_change=log.note)
    log.start(leases)
    with leases.offered(offer_of("long")):
        await leases.take(LEASE, runner="r", address="http://h", wait_seconds=1)
        for number in range(50):
            with leases.offered(offer_of(str(number))):
                await leases.take(f"{number:016}", runner="r", address="h", wait_seconds=1)
                await asyncio.sleep(1.9)
    await log.close()

    of_held = [at for at, lease_id in written if lease_id == LEASE]
    assert of_held == pytest.approx([0, 30, 60, 90, 95])
    assert len(written) > 100


@in_virtual_time
async def test_episodes_that_wait_for_a_runner_are_mentioned_together_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases = Leases(lost_seconds=60)
    waiting = [asyncio.create_task(leases.wait_taken(offer_of(str(n)))) for n in range(100)]
    mentions: list[int] = []
    for _ in range(4):
        await asyncio.sleep(50)
        mentions.append(caplog.text.count("no runner plays any"))
    for one in waiting:
        one.cancel()

    assert mentions == [0, 1, 2, 3]  # after 50, 100, 150 and 200 s
