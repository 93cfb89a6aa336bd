"""Tests for `longhaul_envs.server.table` and `fleet`: what sessions are promised."""

import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import msgspec
import pytest
from starlette.types import Message, Scope

from local_workers import LocalBackend, LocalWorker, until
from longhaul_core.environment import EnvironmentDescription, StepResult
from longhaul_core.errors import ConfigError, EnvironmentFailure
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.server.app import create_app
from longhaul_envs.server.dialects.seat import Seat
from longhaul_envs.server.errors import Cause, Conflict, Gone, NotServed, QuotaSpent, Unavailable
from longhaul_envs.server.fleet import Fleet, FleetLimits
from longhaul_envs.server.hosting import (
    Call,
    Hosted,
    Verb,
    decode_answer,
    encode_calls,
)
from longhaul_envs.server.metrics import Metrics
from longhaul_envs.server.settings import ServerSettings
from longhaul_envs.server.table import Owner, Served, SessionTable, TableLimits
from served_world import STEPS, Prepared
from virtual_time import in_virtual_time

CHAIN = "served/Chain-v0"
ME = Owner("mine", "run 1")


@dataclass
class Counted:
    """A `TableObserver`."""

    closed_by: list[Cause] = field(default_factory=list[Cause])
    verbs: list[Verb] = field(default_factory=list[Verb])

    def called(self, environment_id: str, verb: Verb, seconds: float) -> None:
        self.verbs.append(verb)

    def closed(self, environment_id: str, cause: Cause) -> None:
        self.closed_by.append(cause)


@dataclass
class Room:
    """A table and what is behind it."""

    table: SessionTable
    fleet: Fleet
    backend: LocalBackend
    counted: Counted

    async def playing(self, *, owner: Owner = ME, task_id: str = "chain/1") -> str:
        """A session that is reset."""
        session_id = self.table.create(CHAIN, owner=owner)
        await self.table.reset(session_id, owner=owner, task_id=task_id, seed=1)
        return session_id


def spec_of(environment: str) -> GymEnvironmentSpec:
    return GymEnvironmentSpec(environment_id=environment, import_modules=("served_world",))


@asynccontextmanager
async def room(
    *,
    environment: str = CHAIN,
    limits: TableLimits | None = None,
    num_workers: int = 1,
    sessions_per_worker: int = 4,
    num_warm: int = 1,
    step_seconds: float = 30.0,
    memory_bytes: int = 2**32,
    worker: type[LocalWorker] = LocalWorker,
) -> AsyncGenerator[Room]:
    backend = LocalBackend(spec_of(environment), worker=worker)
    fleet_limits = FleetLimits(
        num_workers=num_workers,
        sessions_per_worker=sessions_per_worker,
        num_warm=num_warm,
        step_seconds=step_seconds,
        memory_bytes=memory_bytes,
    )
    fleet = Fleet(backend, limits=fleet_limits)
    counted = Counted()
    served = Served(
        description=EnvironmentDescription(id=CHAIN, version="1"),
        options={},
        tasks=lambda split: (),
        fleet=fleet,
    )
    table = SessionTable([served], limits=limits or TableLimits(), observer=counted)
    fleet.start()
    reaping = asyncio.create_task(table.reap())
    try:
        await fleet.started()
        yield Room(table, fleet, backend, counted)
    finally:
        reaping.cancel()
        await asyncio.gather(reaping, return_exceptions=True)
        await fleet.close()


def a_task() -> Task:
    return Task(
        environment=CHAIN,
        version="1",
        data_hash="",
        task_id="chain/1",
        seed=1,
        split=Split.TRAIN,
        goal="",
    )


def result(raw: bytes) -> StepResult:
    return msgspec.json.decode(raw, type=StepResult)


@in_virtual_time
async def test_a_step_that_is_asked_for_again_gets_its_answer_again_and_acts_once() -> None:
    async with room() as here:
        session_id = await here.playing()
        first = await here.table.step(session_id, owner=ME, number=1, action="a")
        again = await here.table.step(session_id, owner=ME, number=1, action="a")
        second = await here.table.step(session_id, owner=ME, number=2, action="a")

    assert again == first != second
    assert here.counted.verbs == [Verb.RESET, Verb.STEP, Verb.STEP]


@in_virtual_time
async def test_a_step_that_is_asked_for_while_it_goes_on_is_waited_for() -> None:
    async with room() as here:
        session_id = await here.playing()
        here.backend.may_answer.clear()
        asked = [
            asyncio.create_task(here.table.step(session_id, owner=ME, number=1, action="a"))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        asked[0].cancel()  # whose connection was cut
        here.backend.may_answer.set()
        assert await asked[1] == await asked[2]

    assert here.counted.verbs.count(Verb.STEP) == 1


@in_virtual_time
async def test_a_reset_that_is_asked_for_again_starts_nothing_anew() -> None:
    async with room() as here:
        session_id = here.table.create(CHAIN, owner=ME)
        asked = [
            await here.table.reset(session_id, owner=ME, task_id="chain/1", seed=1)
            for _ in range(2)
        ]
        with pytest.raises(Conflict, match="another task"):
            await here.table.reset(session_id, owner=ME, task_id="chain/2", seed=1)
        await here.table.step(session_id, owner=ME, number=1, action="a")
        with pytest.raises(Conflict, match="reset once"):
            await here.table.reset(session_id, owner=ME, task_id="chain/1", seed=1)

    assert asked[0] == asked[1]
    assert here.counted.verbs.count(Verb.RESET) == 1


@in_virtual_time
async def test_what_does_not_fit_the_sessions_state_is_refused() -> None:
    async with room() as here:
        session_id = here.table.create(CHAIN, owner=ME)
        for asked in (
            lambda: here.table.step(session_id, owner=ME, number=1, action="a"),
            lambda: here.table.render(session_id, owner=ME),
        ):
            with pytest.raises(Conflict):
                await asked()
        with pytest.raises(Conflict, match="reset it first"):
            here.table.observation(session_id, owner=ME)
        await here.table.reset(session_id, owner=ME, task_id="chain/1", seed=1)
        await here.table.step(session_id, owner=ME, number=1, action="a")
        with pytest.raises(Conflict, match="another action at step 1"):
            await here.table.step(session_id, owner=ME, number=1, action="b")
        with pytest.raises(Conflict, match="the next one is 2"):
            await here.table.step(session_id, owner=ME, number=3, action="a")
        last = b""
        for number in range(2, STEPS + 1):
            last = await here.table.step(session_id, owner=ME, number=number, action="a")
        assert result(last).terminated
        with pytest.raises(Conflict, match="has ended"):
            await here.table.step(session_id, owner=ME, number=STEPS + 1, action="a")


@in_virtual_time
async def test_the_last_observation_and_its_actions_can_be_asked_for() -> None:
    async with room() as here:
        session_id = await here.playing()
        first = msgspec.json.decode(here.table.observation(session_id, owner=ME), type=Observation)
        stepped = result(await here.table.step(session_id, owner=ME, number=1, action="a"))
        second = msgspec.json.decode(here.table.observation(session_id, owner=ME), type=Observation)
        listed = here.table.admissible_actions(session_id, owner=ME)

    assert first.anchor_state == "chain/1 0"
    assert second == stepped.observation
    assert listed == second.admissible_actions


@in_virtual_time
async def test_a_creation_that_is_asked_for_again_opens_one_session() -> None:
    async with room() as here:
        ids = {here.table.create(CHAIN, owner=ME, idempotency_key="r") for _ in range(2)}
        other = here.table.create(CHAIN, owner=Owner("another"), idempotency_key="r")
        (session_id,) = ids
        here.table.close(session_id, owner=ME)
        anew = here.table.create(CHAIN, owner=ME, idempotency_key="r")

    assert len({*ids, other, anew}) == 3


@in_virtual_time
async def test_another_token_reaches_no_session() -> None:
    async with room() as here:
        session_id = await here.playing()
        stranger = Owner("another", ME.client)
        with pytest.raises(Gone, match="no such session"):
            here.table.observation(session_id, owner=stranger)
        with pytest.raises(Gone, match="no such session"):
            here.table.close(session_id, owner=stranger)
        assert here.table.heartbeat([session_id], owner=stranger).keys() == {session_id}
        here.table.close(session_id, owner=ME)
        with pytest.raises(Gone, match="no such session"):
            here.table.observation(session_id, owner=stranger)
        with pytest.raises(Gone, match="the client closed it"):
            here.table.observation(session_id, owner=ME)


@in_virtual_time
async def test_a_session_that_nobody_uses_is_closed_and_a_heartbeat_keeps_one() -> None:
    async with room(limits=TableLimits(lease_seconds=2)) as here, asyncio.timeout(60):
        kept, forgotten = [await here.playing() for _ in range(2)]
        while here.table.num_sessions == 2:
            await asyncio.sleep(0.05)
            assert not here.table.heartbeat([kept], owner=ME)
        with pytest.raises(Gone, match="2 s, its lease"):
            here.table.observation(forgotten, owner=ME)
        assert here.fleet.num_taken == 1

    assert here.counted.closed_by[0] is Cause.LEASE


@in_virtual_time
async def test_a_step_that_takes_longer_than_the_lease_keeps_its_session() -> None:
    async with room(limits=TableLimits(lease_seconds=2)) as here:
        session_id = await here.playing()
        here.backend.may_answer.clear()
        stepping = asyncio.create_task(here.table.step(session_id, owner=ME, number=1, action="a"))
        await asyncio.sleep(3)
        here.backend.may_answer.set()
        assert result(await stepping).reward == 1 / 8
        here.table.observation(session_id, owner=ME)  # it is not gone


@in_virtual_time
async def test_an_episode_of_a_dialect_that_notices_who_left_needs_no_lease() -> None:
    async with room(limits=TableLimits(lease_seconds=2)) as here:
        holding, leased = (
            Seat(here.table, here.table.environment(CHAIN), dialect="ors", holds=holds)
            for holds in (True, False)
        )
        for seat in (holding, leased):
            await seat.reset(a_task())
        await until(lambda: here.fleet.num_taken == 1)
        await asyncio.sleep(1)
        with pytest.raises(Gone, match="2 s, its lease"):
            leased.observation()
        assert (await holding.step("a")).reward == 1 / 8
        holding.leave()
        assert here.fleet.num_taken == 0


@in_virtual_time
async def test_pictures_that_are_asked_for_at_once_are_drawn_once() -> None:
    async with room() as here:
        session_id = await here.playing()
        here.backend.may_answer.clear()
        asked = [asyncio.create_task(here.table.render(session_id, owner=ME)) for _ in range(50)]
        await asyncio.sleep(0)
        here.backend.may_answer.set()
        drawn = await asyncio.gather(*asked)

    assert len(set(drawn)) == 1
    assert here.counted.verbs.count(Verb.RENDER) == 1


@in_virtual_time
async def test_a_client_has_its_quota_and_others_have_theirs() -> None:
    async with room(limits=TableLimits(sessions_per_client=2)) as here:
        mine = [here.table.create(CHAIN, owner=ME) for _ in range(2)]
        with pytest.raises(QuotaSpent, match="run 1"):
            here.table.create(CHAIN, owner=ME)
        here.table.create(CHAIN, owner=Owner(ME.token, "run 2"))
        here.table.close(mine[0], owner=ME)
        here.table.create(CHAIN, owner=ME)


@in_virtual_time
async def test_a_full_server_says_so_and_takes_the_next_once_a_place_is_free() -> None:
    async with room(sessions_per_worker=2) as here:
        ids = [here.table.create(CHAIN, owner=ME) for _ in range(2)]
        with pytest.raises(Unavailable, match="all 2 places") as refused:
            here.table.create(CHAIN, owner=ME)
        here.table.close(ids[0], owner=ME)
        here.table.create(CHAIN, owner=ME)

    assert refused.value.retry_after_seconds == 1


@in_virtual_time
async def test_a_client_waits_for_a_place_in_the_order_of_asking() -> None:
    async with room(sessions_per_worker=1) as here:
        first = await here.table.create_soon(CHAIN, owner=ME)
        waiting = [asyncio.create_task(here.table.create_soon(CHAIN, owner=ME)) for _ in range(2)]
        await asyncio.sleep(0)  # both ask
        here.table.close(first, owner=ME)
        second = await waiting[0]
        assert not waiting[1].done()
        here.table.close(second, owner=ME)
        assert await waiting[1] not in (first, second)


@in_virtual_time
async def test_a_client_waits_for_a_place_over_http_too() -> None:
    async with room(sessions_per_worker=1) as here:
        first = here.table.create(CHAIN, owner=ME)
        app = create_app(here.table, ServerSettings(), Metrics())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asyncio.get_running_loop().call_later(0.5, lambda: here.table.close(first, owner=ME))
            created = await client.post("/v1/sessions", json={"environment": CHAIN})

        assert created.status_code == 201
        assert here.table.num_sessions == 1


@in_virtual_time
async def test_a_client_of_a_dialect_waits_for_a_place_too() -> None:
    async with room(sessions_per_worker=1) as here:
        first = here.table.create(CHAIN, owner=ME)
        asyncio.get_running_loop().call_later(0.1, lambda: here.table.close(first, owner=ME))
        seat = Seat(here.table, here.table.served[CHAIN], dialect="agentgym")
        await seat.reset(a_task())
        seat.leave()


@in_virtual_time
async def test_what_can_be_answered_without_a_place_waits_for_nobody() -> None:
    limits = TableLimits(sessions_per_client=1)
    async with room(sessions_per_worker=1, limits=limits) as here:
        first = await here.table.create_soon(CHAIN, owner=ME, idempotency_key="mine")
        other = Owner("", "other")
        waiting = asyncio.create_task(here.table.create_soon(CHAIN, owner=other))
        await asyncio.sleep(0)  # it asks
        again = here.table.create_soon(CHAIN, owner=ME, idempotency_key="mine")
        with pytest.raises(StopIteration) as answered:
            again.send(None)
        assert answered.value.value == first
        with pytest.raises(QuotaSpent):
            here.table.create_soon(CHAIN, owner=ME).send(None)
        waiting.cancel()
        await asyncio.wait([waiting])


@in_virtual_time
async def test_a_client_that_hangs_up_while_it_waits_leaves_no_session() -> None:
    body = msgspec.json.encode({"environment": CHAIN})
    headers = {"host": "localhost", "content-type": "application/json"}
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/sessions",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    received: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return received.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    async with room() as here:
        app = create_app(here.table, ServerSettings(), Metrics())
        await app(scope, receive, send)

        assert sent[0]["status"] == 201
        assert here.table.num_sessions == 0


@in_virtual_time
async def test_a_client_that_waited_long_enough_is_refused() -> None:
    async with room(sessions_per_worker=1, limits=TableLimits(wait_seconds=0.05)) as here:
        await here.table.create_soon(CHAIN, owner=ME)
        with pytest.raises(Unavailable, match="all 1 places"):
            await here.table.create_soon(CHAIN, owner=ME)
        with pytest.raises(NotServed):
            await here.table.create_soon("nobody/Knows-v0", owner=ME)


@in_virtual_time
async def test_places_of_a_worker_that_is_not_there_are_not_said_to_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with room(sessions_per_worker=2) as here:
        is_held, start = asyncio.Event(), here.backend.start_worker

        async def start_later() -> LocalWorker:
            await is_held.wait()
            return await start()

        monkeypatch.setattr(here.backend, "start_worker", start_later)
        here.backend.workers[0].kill("was killed by the test,")
        await until(lambda: not here.fleet.num_workers)
        with pytest.raises(Unavailable, match="0 of 2 places") as no:
            here.table.create(CHAIN, owner=ME)
        assert no.value.cause == "full"
        assert "the others are being started" in str(no.value)
        assert here.table.status == "starting"
        is_held.set()
        await until(lambda: here.fleet.num_workers)
        assert here.table.status == "ready"
        await here.playing()


@in_virtual_time
async def test_what_is_not_served_cannot_be_opened() -> None:
    async with room() as here:
        with pytest.raises(NotServed, match=CHAIN):
            here.table.create("os:system", owner=ME)


@in_virtual_time
async def test_a_place_is_not_given_away_while_a_call_of_its_last_session_goes_on() -> None:
    async with room(sessions_per_worker=1) as here:
        session_id = await here.playing()
        here.backend.may_answer.clear()
        stepping = asyncio.create_task(here.table.step(session_id, owner=ME, number=1, action="a"))
        await asyncio.sleep(0)
        here.table.close(session_id, owner=ME)
        with pytest.raises(Unavailable):
            here.table.create(CHAIN, owner=ME)
        here.backend.may_answer.set()
        await stepping
        here.table.create(CHAIN, owner=ME)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("raise", "RuntimeError: as it was asked to"),
        ("boast", r"reward must be at most 1e\+30 in size, got 1e\+200"),
        ("end twice", "both terminated and truncated"),
    ],
)
@in_virtual_time
async def test_an_error_of_the_environment_ends_its_session_alone(
    action: str, message: str
) -> None:
    async with room() as here:
        failing, other = [await here.playing() for _ in range(2)]
        for _ in range(2):  # the second time it is asked for as well
            with pytest.raises(Gone, match=message) as gone:
                await here.table.step(failing, owner=ME, number=1, action=action)
            assert gone.value.cause == Cause.ENVIRONMENT_ERROR
        await here.table.step(other, owner=ME, number=1, action="a")
        with pytest.raises(Gone, match="no task is called"):
            await here.playing(task_id="nonsense")
        await here.playing()
        assert len(here.backend.workers) == 1


@in_virtual_time
async def test_an_environment_that_shares_no_process_loses_it_with_an_error() -> None:
    async with room(environment="served/Alone-v0", sessions_per_worker=1) as here:
        session_id = await here.playing()
        with pytest.raises(Gone):
            await here.table.step(session_id, owner=ME, number=1, action="raise")
        await until(lambda: len(here.backend.workers) == 2 and here.fleet.num_workers)
        await here.playing()

    assert here.backend.workers[0].ended.done()


@in_virtual_time
async def test_an_error_after_its_client_has_left_costs_that_process_as_well() -> None:
    async with room(environment="served/Alone-v0", sessions_per_worker=1) as here:
        session_id = await here.playing()
        here.backend.may_answer.clear()
        step = here.table.step(session_id, owner=ME, number=1, action="raise")
        stepping = asyncio.create_task(step)
        await asyncio.sleep(0)
        here.table.close(session_id, owner=ME)
        here.backend.may_answer.set()
        with pytest.raises(Gone):
            await stepping
        await until(lambda: len(here.backend.workers) == 2 and here.fleet.num_workers)
        await here.playing()


@in_virtual_time
async def test_a_worker_that_is_about_to_end_takes_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with room(environment="served/Alone-v0", sessions_per_worker=1) as here:
        session_id = await here.playing()
        (worker,) = here.backend.workers
        kill, causes = worker.kill, list[str]()
        monkeypatch.setattr(worker, "kill", causes.append)
        with pytest.raises(Gone):
            await here.table.step(session_id, owner=ME, number=1, action="raise")
        await until(lambda: causes)
        assert not worker.ended.done()
        with pytest.raises(Unavailable):
            here.table.create(CHAIN, owner=ME)
        kill(causes[0])
        await until(lambda: len(here.backend.workers) == 2 and here.fleet.num_workers)
        await here.playing()


@in_virtual_time
async def test_a_step_of_a_dialect_that_is_asked_for_twice_at_once_counts_once() -> None:
    async with room() as here:
        seat = Seat(here.table, here.table.served[CHAIN], dialect="agentgym")
        task = a_task()
        await seat.reset(task)
        twice = await asyncio.gather(*(seat.step("a") for _ in range(2)))
        assert twice[0] == twice[1]
        assert (seat.num_steps, seat.episode_return) == (1, twice[0].reward)
        await seat.step("a")
        seat.leave()


@in_virtual_time
async def test_half_a_character_of_a_dialect_s_client_costs_no_worker() -> None:
    async with room(step_seconds=10) as here:
        neighbour = await here.playing()
        seat = Seat(here.table, here.table.served[CHAIN], dialect="agentgym")
        await seat.reset(a_task())
        assert (await seat.step("\ud83d")).reward == 1 / 8  # as JSON may name one
        here.table.observation(neighbour, owner=ME)
        seat.leave()


@in_virtual_time
async def test_a_lost_worker_fails_its_sessions_with_the_cause_and_is_replaced() -> None:
    async with room(num_workers=2, sessions_per_worker=2) as here:
        ids = [await here.playing() for _ in range(4)]
        here.backend.may_answer.clear()
        stepping = asyncio.create_task(here.table.step(ids[0], owner=ME, number=1, action="a"))
        await until(lambda: any(worker.num_asked > 3 for worker in here.backend.workers))
        (busy,) = [worker for worker in here.backend.workers if worker.num_asked > 3]
        busy.kill("was killed by the test,")
        with pytest.raises(Gone, match=r"killed by the test") as gone:
            await stepping
        here.backend.may_answer.set()
        gone_ids = here.table.heartbeat(ids, owner=ME)
        assert len(gone_ids) == 2
        assert ids[0] in gone_ids
        await until(lambda: here.fleet.num_workers == 2)
        await here.playing()

    assert gone.value.cause == Cause.WORKER_LOST


@in_virtual_time
async def test_a_call_that_passes_its_deadline_costs_the_worker() -> None:
    async with room(step_seconds=0.2) as here:
        session_id, neighbour = [await here.playing() for _ in range(2)]
        here.backend.may_answer.clear()
        with pytest.raises(Gone, match=r"did not return within 0\.2 s") as gone:
            await here.table.step(session_id, owner=ME, number=1, action="a")
        here.backend.may_answer.set()
        assert gone.value.cause == Cause.TIMEOUT
        with pytest.raises(Gone) as again:
            await here.table.step(session_id, owner=ME, number=1, action="a")
        assert str(again.value) == str(gone.value)
        with pytest.raises(Gone, match="while this session waited"):
            here.table.observation(neighbour, owner=ME)


@in_virtual_time
async def test_a_step_keeps_its_deadline_beside_resets_which_may_take_longer() -> None:
    async with room(step_seconds=0.2) as here:
        session_id, other = await here.playing(), here.table.create(CHAIN, owner=ME)
        here.backend.may_answer.clear()
        step = here.table.step(session_id, owner=ME, number=1, action="a")
        reset = here.table.reset(other, owner=ME, task_id="chain/1", seed=1)
        async with asyncio.timeout(40):  # less than a reset may take
            answers = await asyncio.gather(step, reset, return_exceptions=True)
        here.backend.may_answer.set()
    assert ["did not return within 0.2 s" in str(answer) for answer in answers] == [True, True]


@in_virtual_time
async def test_a_worker_that_holds_too_much_is_killed_though_nobody_asks_it() -> None:
    async with room(memory_bytes=2**20) as here:
        session_id = await here.playing()
        here.backend.workers[0].held_bytes = 3 * 2**20
        await until(lambda: here.table.heartbeat([session_id], owner=ME))
        with pytest.raises(Gone, match="held 3 MiB; the limit is 1 MiB") as gone:
            here.table.observation(session_id, owner=ME)

    assert gone.value.cause == Cause.MEMORY


@in_virtual_time
async def test_a_back_end_that_breaks_its_promise_once_is_asked_for_a_worker_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with room() as here:
        start = here.backend.start_worker

        async def fail_once() -> LocalWorker:
            monkeypatch.setattr(here.backend, "start_worker", start)
            raise RuntimeError("the cluster's head is away")

        monkeypatch.setattr(here.backend, "start_worker", fail_once)
        here.backend.workers[0].kill("was killed by the test,")
        await until(lambda: len(here.backend.workers) == 2 and here.fleet.num_workers)
        await here.playing()


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), RuntimeError("the head is away")]
)
@in_virtual_time
async def test_a_worker_that_could_not_be_measured_for_once_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with room(memory_bytes=2**20) as here:
        session_id = await here.playing()
        (worker,) = here.backend.workers
        failed = asyncio.Event()

        async def failing() -> int:
            failed.set()
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(worker, "resident_bytes", failing)
            await failed.wait()
        worker.held_bytes = 3 * 2**20
        await until(lambda: here.table.heartbeat([session_id], owner=ME))

    assert here.counted.closed_by[0] == Cause.MEMORY


@in_virtual_time
async def test_calls_of_many_sessions_travel_together() -> None:
    async with room() as here:
        ids = [await here.playing() for _ in range(4)]
        asked_before = here.backend.workers[0].num_asked
        await asyncio.gather(*(here.table.step(one, owner=ME, number=1, action="a") for one in ids))

    assert here.backend.workers[0].num_asked == asked_before + 1


@in_virtual_time
async def test_a_slow_call_of_a_batch_leaves_the_others_their_deadline() -> None:
    class SlowWorker(LocalWorker):
        """Answers one call of each message, after 1.5 s."""

        async def _ask(self, message: bytes) -> bytes:
            first = msgspec.msgpack.decode(message, type=tuple[Call, ...])[0]
            await asyncio.sleep(1.5 if first.verb is Verb.STEP else 0)
            return await super()._ask(encode_calls([first]))

    async with room(step_seconds=3.0, worker=SlowWorker) as here:
        ids = [await here.playing() for _ in range(3)]
        answers = await asyncio.gather(
            *(here.table.step(one, owner=ME, number=1, action="a") for one in ids)
        )

    assert [result(answer).reward for answer in answers] == [1 / 8] * 3


def test_a_worker_answers_what_it_has_done_once_a_call_was_slow() -> None:
    hosted = Hosted(spec_of(CHAIN))
    hosted.answer(encode_calls([Call(Verb.RESET, place, "chain/1") for place in range(3)]))
    quick, slow = (
        decode_answer(hosted.answer(encode_calls([Call(Verb.STEP, n, action) for n in range(3)])))
        for action in ("a", "pause")
    )
    assert [len(quick), len(slow)] == [3, 1]


@in_virtual_time
async def test_a_server_that_drains_opens_nothing_and_lets_episodes_end() -> None:
    async with room() as here:
        ending, left = [await here.playing() for _ in range(2)]
        draining = asyncio.create_task(here.table.drain(seconds=2))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="stopped"):
            here.table.create(CHAIN, owner=ME)
        await here.table.step(ending, owner=ME, number=1, action="a")
        here.table.close(ending, owner=ME)
        await draining
        with pytest.raises(Gone, match="the server was stopped"):
            here.table.observation(left, owner=ME)


@in_virtual_time
async def test_an_environment_that_cannot_be_made_is_met_before_the_first_session() -> None:
    with pytest.raises(EnvironmentFailure, match="its data is missing"):
        async with room(environment="served/Unbuildable-v0"):
            pass


@in_virtual_time
async def test_free_places_are_prepared_before_a_session_and_after_one() -> None:
    Prepared.asked.clear()
    async with room(environment="served/Prepared-v0", sessions_per_worker=3, num_warm=2) as here:
        assert Prepared.asked == ["make", "prepare"] * 2
        first, second = [await here.playing() for _ in range(2)]
        assert Prepared.asked[4:] == ["reset"] * 2
        await here.table.step(first, owner=ME, number=1, action="a")
        here.table.close(first, owner=ME)
        await until(lambda: Prepared.asked[6:] == ["a", "prepare"])
        third = await here.playing()  # in that place, not in the one that nobody had
        assert Prepared.asked[8:] == ["reset"]
        for session in (second, third):
            here.table.close(session, owner=ME)
        await until(lambda: Prepared.asked[9:] == ["prepare"] * 2)


@in_virtual_time
async def test_an_instance_that_failed_is_made_anew_before_the_next_session() -> None:
    Prepared.asked.clear()
    async with room(environment="served/Prepared-v0", sessions_per_worker=2) as here:
        session = await here.playing()
        with pytest.raises(Gone, match="as it was asked to"):
            await here.table.step(session, owner=ME, number=1, action="raise")
        made = ["make", "prepare"]
        await until(lambda: Prepared.asked == [*made, "reset", "raise", *made])


def test_limits_out_of_range_are_refused_together() -> None:
    with pytest.raises(ConfigError, match=r"num_workers must be .*; step_seconds must be above 0"):
        FleetLimits(num_workers=0, step_seconds=0)
    with pytest.raises(ConfigError, match="num_warm must be from 0 to sessions_per_worker = 2"):
        FleetLimits(sessions_per_worker=2, num_warm=3)
    with pytest.raises(ConfigError, match="lease_seconds"):
        TableLimits(lease_seconds=0)
