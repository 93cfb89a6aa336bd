"""What a runner may say to a run's gateway, and what it is answered, over HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from gateways import plain_client
from longhaul_core.types import Split, Task
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.gateway.exchange import CreditReport
from longhaul_trainer.gateway.server import Gateway
from longhaul_trainer.play.programs.program import Endpoint, Leavings
from longhaul_trainer.play.runners.leases import Leases
from longhaul_trainer.play.runners.remote import RemoteProgram
from longhaul_trainer.play.runners.routes import runner_routes
from longhaul_trainer.play.runners.server import Addresses
from longhaul_trainer.play.runners.wire import End, Granted, Result
from runner_house import TOKEN, until, waiting_runners

ADDRESS = "http://10.0.0.5:8400"
LEASE, OTHER = "a" * 32, "b" * 32
LEFT = Result(end=End.LEFT, printed="0.5", exit_code=0)
TASK = Task(
    environment="file", version="1", data_hash="", task_id="t", seed=0, split=Split.TRAIN, data="{}"
)


class Desk:
    """A gateway that runners may lease from, and a client by hand."""

    def __init__(self, gateway: Gateway, leases: Leases, http: httpx.AsyncClient) -> None:
        self.gateway = gateway
        self.leases = leases
        self.http = http

    def play(self) -> "asyncio.Task[Leavings]":
        return asyncio.create_task(self._play())

    async def _play(self) -> Leavings:
        program = RemoteProgram(
            leases=self.leases, gateway=self.gateway.address, deadline_seconds=9
        )
        endpoint = Endpoint(
            environ={"OPENAI_BASE_URL": f"{self.gateway.address}/e/x/v1", "OPENAI_API_KEY": "key"},
            report=_nowhere,
            report_reward=lambda value, success: None,
        )
        async with program.run(TASK, endpoint=endpoint) as left:
            return left

    async def lease(self, lease: str = LEASE, *, wait_seconds: float = 5.0) -> httpx.Response:
        asked = {"runner": "r", "address": ADDRESS, "wait_seconds": wait_seconds}
        return await self.http.post(f"/runners/v1/leases/{lease}", json=asked)

    async def result(self, result: Result = LEFT, lease: str = LEASE) -> httpx.Response:
        body = json.loads(msgspec.json.encode(result))
        return await self.http.post(f"/runners/v1/leases/{lease}/result", json=body)

    async def beat(self, *leases: str) -> dict[str, object]:
        body = {"runner": "r", "leases": leases}
        return (await self.http.post("/runners/v1/heartbeat", json=body)).json()


def _nowhere(credit: CreditReport) -> None:
    raise AssertionError("a runner's program reports by HTTP")


@asynccontextmanager
async def opened(lost_seconds: float) -> AsyncGenerator[Desk]:
    leases = Leases(lost_seconds=lost_seconds)
    routes = runner_routes(leases, token=TOKEN, gateways=lambda reached: (reached, "other"))
    gateway = Gateway(routes=routes)
    await gateway.start()
    try:
        async with plain_client(gateway.address, key=TOKEN) as http:
            yield Desk(gateway, leases, http)
    finally:
        await gateway.stop()


def at_desk(act: Callable[[Desk], Awaitable[None]], *, lost_seconds: float = 30.0) -> None:
    async def whole() -> None:
        async with opened(lost_seconds) as desk:
            await act(desk)

    asyncio.run(whole())


def test_a_lease_has_the_task_and_addresses_that_the_runner_reaches() -> None:
    async def act(desk: Desk) -> None:
        waiting = asyncio.create_task(desk.lease())
        playing = desk.play()

        granted = msgspec.json.decode((await waiting).content, type=Granted)

        assert granted.task == "{}"
        assert granted.environ == {
            "OPENAI_BASE_URL": f"{ADDRESS}/e/x/v1",
            "OPENAI_API_KEY": "key",
        }
        assert (granted.deadline_seconds, granted.lost_seconds) == (9, 30)
        assert (await desk.result()).status_code == 200
        assert await playing == Leavings(printed="0.5", exit_code=0)

    at_desk(act)


def test_what_is_sent_again_changes_nothing() -> None:
    async def act(desk: Desk) -> None:
        first, second = desk.play(), desk.play()

        one, again = await desk.lease(), await desk.lease()

        assert one.json() == again.json()
        assert len(desk.leases.held) == 1
        twice = await asyncio.gather(desk.result(), desk.result())
        assert [answer.status_code for answer in twice] == [200, 200]
        await first
        other = Result(end=End.FAILED, message="another")
        assert (await desk.result(other)).status_code == 200  # the first one counts
        assert (await desk.lease()).status_code == 410  # a late repetition gets no new episode
        assert not second.done()
        second.cancel()

    at_desk(act)


def test_after_its_lease_a_runner_is_told_so() -> None:
    async def act(desk: Desk) -> None:
        playing = desk.play()
        await desk.lease()
        assert await desk.beat(LEASE, OTHER) == {
            "over": {OTHER: "this gateway does not know it"},
            "enough": [],
        }

        playing.cancel()
        await asyncio.wait({playing})

        over = await desk.beat(LEASE)
        assert over == {"over": {LEASE: "nobody waits for the episode any more"}, "enough": []}
        late = await desk.result()
        assert late.status_code == 410
        assert "nobody waits" in late.text
        assert (await desk.result(lease=OTHER)).status_code == 410

    at_desk(act)


def test_who_goes_away_while_waiting_gets_no_episode() -> None:
    async def act(desk: Desk) -> None:
        async with plain_client(desk.gateway.address, key=TOKEN) as http:
            asked = {"runner": "gone", "address": ADDRESS, "wait_seconds": 20}
            waiting = asyncio.create_task(http.post(f"/runners/v1/leases/{OTHER}", json=asked))
            await until("it waits", lambda: waiting_runners(desk.leases))
            waiting.cancel()
        await until("it is gone", lambda: not waiting_runners(desk.leases))
        playing = desk.play()

        assert (await desk.lease()).status_code == 200
        await desk.result()
        await playing

    at_desk(act)


def test_without_an_episode_the_answer_is_empty() -> None:
    async def act(desk: Desk) -> None:
        assert (await desk.lease(wait_seconds=0.05)).status_code == 204

    at_desk(act)


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"Authorization": "Bearer wrong"}, "{}", 401),
        ({"Authorization": ""}, "{}", 401),
        ({"Content-Type": "text/plain"}, "{}", 415),
        ({"Host": "evil.example"}, "{}", 400),
        ({}, "{}", 422),
        ({}, '{"runner": "r", "address": "http://10.0.0.5:8400/path"}', 422),
        ({}, '"' + "x" * 1_000_001 + '"', 413),
    ],
)
def test_what_no_runner_says_is_refused(headers: dict[str, str], content: str, status: int) -> None:
    async def act(desk: Desk) -> None:
        playing = desk.play()
        sent = {"Content-Type": "application/json", **headers}
        answer = await desk.http.post(f"/runners/v1/leases/{LEASE}", content=content, headers=sent)

        assert answer.status_code == status
        assert not desk.leases.held
        playing.cancel()

    at_desk(act)


def test_one_gateway_names_the_others(tmp_path: Path) -> None:
    first, second, third = (Addresses(tmp_path, AgentLoop(index=index, of=3)) for index in range(3))
    first.write("http://127.0.0.1:8400")
    second.write("http://127.0.0.1:8401")

    assert first.read(ADDRESS) == (ADDRESS, "http://10.0.0.5:8401")
    assert second.read("http://host:9") == ("http://host:9", "http://host:8400")
    third.write("http://0.0.0.0:8402")
    assert first.read(ADDRESS) == (ADDRESS, "http://10.0.0.5:8401", "http://10.0.0.5:8402")
    assert "0.0.0.0" not in (tmp_path / "gateways/2.json").read_text(encoding="utf-8")
