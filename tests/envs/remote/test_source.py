"""Tests for `longhaul_envs.remote`: the same episodes as in process, and clear refusals."""

import asyncio
import json
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from environment_server import TOKEN, RunningServer, running_server
from local_workers import in_event_loop, until
from longhaul_core.environment import Environment, EnvironmentSource, StepResult
from longhaul_core.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.remote.client import ServerClient
from longhaul_envs.remote.source import RemoteSource
from longhaul_envs.sources import environment_source
from served_world import STEPS

TEXTCRAFT = "longhaul/TextCraft-v0"
OPTIONS: dict[str, object] = {"depth": 2}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        {"id": TEXTCRAFT, "options": OPTIONS, "limits": {"num_workers": 2}},
        {"id": "served/Chain-v0", "limits": {"num_workers": 1, "step_seconds": 3.0}},
        {"id": "served/Drawn-v0", "limits": {"num_workers": 1}},
        {"id": "served/Alone-v0", "limits": {"num_workers": 2}},
        folder=tmp_path_factory.mktemp("server"),
        settings={"tokens": {"": TOKEN}},
        table={"lease_seconds": 5.0},
    ) as running:
        yield running


def remote(server: RunningServer, name: str, **options: object) -> RemoteSource:
    return RemoteSource(server.address, name, options, token=TOKEN)


def local(name: str, **options: object) -> EnvironmentSource:
    return environment_source(
        GymEnvironmentSpec(environment_id=name, options=options, import_modules=("served_world",))
    )


async def played(
    environment: Environment, task: Task, *, num_steps: int
) -> list[Observation | StepResult]:
    """Admissible actions drawn by the task's seed, and what they brought."""
    draw = random.Random(task.seed)
    await environment.open()
    try:
        shown: list[Observation | StepResult] = [await environment.reset(task)]
        for _ in range(num_steps):
            last = shown[-1]
            seen = last.observation if isinstance(last, StepResult) else last
            assert seen.admissible_actions
            stepped = await environment.step(draw.choice(seen.admissible_actions))
            shown.append(stepped)
            if stepped.terminated:
                break
    finally:
        await environment.close()
    return shown


@pytest.mark.parametrize(
    ("name", "options"),
    [(TEXTCRAFT, OPTIONS), ("served/Drawn-v0", {}), ("served/Alone-v0", {})],
    ids=["batched", "with pictures", "one a process"],
)
def test_a_task_gives_the_same_episode_in_process_and_remote(
    server: RunningServer, name: str, options: dict[str, object]
) -> None:
    there, here = remote(server, name, **options), local(name, **options)
    tasks = here.tasks(Split.VALIDATION)[:6]

    async def all_of(source: EnvironmentSource) -> list[list[Observation | StepResult]]:
        return await asyncio.gather(
            *(played(source.make(task), task, num_steps=STEPS) for task in tasks)
        )

    assert asyncio.run(all_of(there)) == asyncio.run(all_of(here))
    assert there.describe() == here.describe()
    assert list(there.tasks(Split.VALIDATION)) == list(here.tasks(Split.VALIDATION))


@in_event_loop
async def test_pictures_travel_with_their_bytes(server: RunningServer) -> None:
    source = remote(server, "served/Drawn-v0")
    (first, *_) = await played(source.make(a_task(source)), a_task(source), num_steps=0)

    assert isinstance(first, Observation)
    (picture,) = first.pictures
    assert picture.data is not None
    assert picture.data.startswith(b"\x89PNG")


def a_task(source: EnvironmentSource) -> Task:
    return source.tasks(Split.TRAIN)[0]


@in_event_loop
async def test_an_error_of_the_environment_is_not_tried_again(server: RunningServer) -> None:
    source = remote(server, "served/Chain-v0")
    environment = source.make(a_task(source))
    await environment.open()
    await environment.reset(a_task(source))
    with pytest.raises(EnvironmentFailure, match=r"410, environment_error: .*as it was asked to"):
        await environment.step("raise")
    await environment.close()

    assert server.log.read_text().count("raise RuntimeError(") == 1


@in_event_loop
async def test_a_hang_is_reported_as_a_missed_deadline(server: RunningServer) -> None:
    source = remote(server, "served/Chain-v0")
    environment = source.make(a_task(source))
    await environment.open()
    await environment.reset(a_task(source))
    with pytest.raises(EnvironmentTimeout, match="did not return within 3 s"):
        await environment.step("hang")
    await environment.close()


@in_event_loop
async def test_a_session_outlives_its_lease_while_its_agent_thinks(server: RunningServer) -> None:
    source = remote(server, "served/Chain-v0")
    environment = source.make(a_task(source))
    await environment.open()
    await environment.reset(a_task(source))
    await asyncio.sleep(6)
    assert (await environment.step("wait")).reward == 1 / 8
    await environment.close()


@in_event_loop
async def test_a_full_server_is_waited_for(server: RunningServer) -> None:
    source = remote(server, "served/Alone-v0")
    task = a_task(source)
    environments = [source.make(task) for _ in range(3)]
    for environment in environments[:2]:
        await environment.open()
    waiting = asyncio.create_task(environments[2].open())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await environments[0].close()
    await waiting
    for environment in environments:
        await environment.close()


@in_event_loop
async def test_a_limited_source_opens_no_more_sessions_than_it_may(server: RunningServer) -> None:
    source = remote(server, "served/Chain-v0").limited(2)
    task = a_task(source)
    environments = [source.make(task) for _ in range(3)]
    opening = [asyncio.create_task(one.open()) for one in environments]
    await until(lambda: sum(one.done() for one in opening) == 2)
    await asyncio.sleep(0.2)
    assert not opening[2].done()
    await environments[0].close()
    await opening[2]
    for environment in environments:
        await environment.close()


@in_event_loop
async def test_an_opening_that_is_given_up_leaves_no_session(server: RunningServer) -> None:
    source = remote(server, "served/Alone-v0")
    task = a_task(source)
    for _ in range(3):
        given_up = source.make(task)
        opening = asyncio.create_task(given_up.open())
        await asyncio.sleep(0.005)  # some are on their way, some are not
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await given_up.close()
    both = [source.make(task) for _ in range(2)]
    async with asyncio.timeout(4):  # less than the lease
        for environment in both:
            await environment.open()
    for environment in both:
        await environment.close()


def test_connections_end_with_the_episodes(server: RunningServer) -> None:
    source = remote(server, "served/Chain-v0")
    task = a_task(source)
    asyncio.run(played(source.make(task), task, num_steps=2))
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):  # each in an event loop of its own
        asyncio.run(played(source.make(task), task, num_steps=2))

    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads


def test_other_options_are_refused_with_both(server: RunningServer) -> None:
    with pytest.raises(ConfigError, match=r"with the options \{'depth': 2\}, and the run has \{\}"):
        remote(server, TEXTCRAFT).describe()


def test_another_version_is_refused_where_the_environment_is_installed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "longhaul_envs.textcraft.tasks.TextCraftOptions.version", property(lambda self: "7")
    )

    with pytest.raises(ConfigError, match=r"in version '1', and version '7' is installed here"):
        remote(server, TEXTCRAFT, **OPTIONS).describe()


def test_what_is_not_served_is_refused_with_what_is(server: RunningServer) -> None:
    with pytest.raises(
        ConfigError, match=r"does not serve 'longhaul/Sokoban-v0'; it serves .*Text"
    ):
        remote(server, "longhaul/Sokoban-v0").describe()


@pytest.mark.parametrize(("token", "words"), [("", "is required"), ("x" * 20, "was refused")])
def test_a_token_that_is_missing_or_wrong_is_named(
    server: RunningServer, token: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"a token {words}; put the server's into .*ENV_TOKEN"):
        RemoteSource(server.address, TEXTCRAFT, OPTIONS, token=token).describe()


def test_a_server_that_is_not_there_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be reached: .*start it with `trainer serve-env`"
    ):
        RemoteSource("http://127.0.0.1:1", TEXTCRAFT, {}).describe()


def test_a_server_of_another_protocol_is_refused_with_both_versions() -> None:
    with other_server({"/health": json.dumps({"status": "ready", "protocols": [2, 3]})}) as address:
        with pytest.raises(ConfigError, match="in version 2, 3, and this client in version 1"):
            RemoteSource(address, TEXTCRAFT, {}).describe()


def test_what_is_no_environment_server_is_refused() -> None:
    with other_server({"/v1/environments": "<html>"}) as address:
        with pytest.raises(ConfigError, match="is no environment server"):
            RemoteSource(address, TEXTCRAFT, {}).describe()


@in_event_loop
async def test_an_opening_that_fails_leaves_its_place_to_the_next() -> None:
    source = RemoteSource("http://127.0.0.1:1", TEXTCRAFT, {}).limited(1)
    task = Task(
        environment=TEXTCRAFT,
        version="1",
        data_hash="",
        task_id="1",
        seed=1,
        split=Split.TRAIN,
        goal="",
    )
    for _ in range(2):
        environment = source.make(task)
        async with asyncio.timeout(60):
            with pytest.raises(ConfigError, match="cannot be reached"):
                await environment.open()
        await environment.close()


@in_event_loop
async def test_what_speaks_no_http_fails_the_steps_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longhaul_envs.remote.client._UNREACHABLE_SECONDS", 0.1)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    await assert_two_steps_fail_of(greet, "could not be reached for 0.1 s")


@in_event_loop
async def test_an_answer_without_a_result_for_each_fails_the_steps_of_its_batch() -> None:
    body = b'{"results":[]}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    await assert_two_steps_fail_of(answer, "gave 0 results for 2 steps")


async def assert_two_steps_fail_of(
    server: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], reason: str
) -> None:
    """Both steps of a batch that `server` answers fail within seconds, for that reason."""
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        client = client_at(listening)
        async with asyncio.timeout(30):  # a server that is away is tried for 60 s
            outcomes = await asyncio.gather(*two_steps(client), return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, EnvironmentFailure)
            assert reason in str(outcome)
        await client.leave()


@in_event_loop
async def test_a_batch_that_nobody_waits_for_ends_with_the_connections() -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as listening:
        client = client_at(listening)
        stepping = [asyncio.create_task(step) for step in two_steps(client)]
        await asked.wait()
        for step in stepping:
            step.cancel()
        await client.leave()
        assert not [task for task in asyncio.all_tasks() if "_send_batch" in repr(task)]


@in_event_loop
async def test_a_step_that_nothing_was_asked_with_is_sent_alone_and_holds_up_no_batch() -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.put_nowait(head.split()[1].decode())
        await reader.read()  # never answered
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as listening:
        client = client_at(listening)
        stepping: list[asyncio.Task[StepResult]] = []

        async def path_of(*steps: Coroutine[None, None, StepResult]) -> str:
            stepping.extend(map(asyncio.create_task, steps))
            async with asyncio.timeout(60):
                return await asked.get()

        alone = "/v1/sessions/a/step"
        assert await path_of(client.step("a", number=1, action="wait")) == alone
        assert await path_of(client.step("b", number=1, action="wait")) == "/v1/steps"
        assert await path_of(*two_steps(client)) == "/v1/steps"
        for step in stepping:
            step.cancel()
        await asyncio.wait(stepping)
        await client.leave()

        client = client_at(listening)
        given_up = asyncio.create_task(client.step("a", number=1, action="wait"))
        async with asyncio.timeout(60):
            await asked.get()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert await path_of(client.step("a", number=2, action="wait")) == alone
        stepping[-1].cancel()
        await asyncio.wait(stepping)
        await client.leave()


@in_event_loop
async def test_a_session_is_given_back_while_hundreds_wait_for_a_place() -> None:
    given_back, num_waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def full(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"DELETE"):
            given_back.set()
        num_waiting.release()
        await reader.read()  # never answered
        writer.close()

    async with await asyncio.start_server(full, "127.0.0.1", 0) as listening:
        client = client_at(listening)
        opening = [
            asyncio.create_task(client.create("some", idempotency_key=str(number)))
            for number in range(600)
        ]
        for _ in range(50):
            await num_waiting.acquire()
        closing = asyncio.create_task(client.close_session("a", "some", idempotency_key="k"))
        async with asyncio.timeout(60):
            await asyncio.wait(
                [closing, asyncio.create_task(given_back.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        assert given_back.is_set()
        for task in (closing, *opening):
            task.cancel()
        await asyncio.wait([closing, *opening])
        await client.leave()


def two_steps(client: ServerClient) -> list[Coroutine[None, None, StepResult]]:
    return [client.step(session, number=1, action="wait") for session in ("one", "other")]


def client_at(listening: asyncio.Server) -> ServerClient:
    port = listening.sockets[0].getsockname()[1]
    client = ServerClient(f"http://127.0.0.1:{port}", token="", name="", batches=True)
    client.enter()
    return client


@contextmanager
def other_server(pages: dict[str, str]) -> Generator[str]:
    """A server that has these pages, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path, "").encode()
            self.send_response(200 if page else 404)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_the_log_of_a_server_names_no_token(server: RunningServer) -> None:
    assert TOKEN not in server.log.read_text(encoding="utf-8")
