"""Many requests at once, at a real server: each is answered, and none waits for another's end."""

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

from apps.browser import wait_until_it_answers
from apps.conftest import SampleStore
from apps.sample_store import write_sample_store
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store import queries
from longhaul_core.store.session import read_only_engine
from ports import free_port

AT_ONCE = 200
ANSWER_SECONDS = 240.0
NO_LIMITS = httpx.Limits(max_connections=None)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, sample: SampleStore) -> Iterator[str]:
    """The address of a store that holds a whole run."""
    if request.param == "sqlite":
        yield sample.url
        return
    server: URL = request.getfixturevalue("postgresql_server")
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE api_load"))
        url = server.set(database="api_load").render_as_string(hide_password=False)
        with ThreadPoolExecutor(1) as player:  # a loop of its own
            player.submit(write_sample_store, url, num_training_steps=3).result()
        yield url
        connection.execute(text("DROP DATABASE api_load WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(scope="module")
def server(
    store: str, quick_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of the program `api`, as a user starts it."""
    port = free_port()
    log = tmp_path_factory.mktemp("api") / "log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [quick_python, "-m", "longhaul_api.main", "--port", str(port)],
            env=os.environ | {"LONGHAUL_STORE": store},
            stderr=output,
        )
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/openapi.json", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()  # it only reads, and one that hangs must not outlive the test
            process.wait(timeout=60)


def addresses_of(store: str) -> list[str]:
    """An address for each kind of answer: lists, curves, a group, an episode, one of its steps."""
    engine = read_only_engine(store)
    with Session(engine) as session:
        run_id = queries.list_runs(session)[0].run_id
        episode = queries.list_episodes(session, limit=1).rows[0].episode_id
    engine.dispose()
    run = f"/runs/{run_id}"
    return [
        "/runs",
        run,
        *(f"{run}/{what}" for what in ("curve", "metrics/series", "evaluations", "failures")),
        *(f"{run}/{what}" for what in ("episodes?limit=100", "groups", "groups/train/3/0")),
        f"/episodes/{episode}?tokens=true",
        f"/episodes/{episode}/steps/0",
    ]


async def statuses(server: str, addresses: Sequence[str]) -> Counter[int]:
    """How often each status was answered when all are asked at once."""
    async with httpx.AsyncClient(
        base_url=server, timeout=ANSWER_SECONDS, limits=NO_LIMITS
    ) as client:
        answers = await asyncio.gather(*(client.get(address) for address in addresses))
    return Counter(answer.status_code for answer in answers)


def test_two_hundred_requests_at_once_are_all_answered(server: str, store: str) -> None:
    addresses = addresses_of(store)
    asked = [addresses[number % len(addresses)] for number in range(AT_ONCE)]
    assert asyncio.run(statuses(server, asked)) == {200: AT_ONCE}


def test_a_request_that_gets_no_connection_is_503_and_told_when_to_come_again(
    sample: SampleStore,
) -> None:
    engine = create_engine(
        f"sqlite:///file:{sample.url}?mode=ro&uri=true",
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.05,
    )
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        with engine.connect():
            refused = client.get("/runs")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "connections of this program were busy" in refused.json()["detail"]
        assert client.get("/runs").status_code == 200
    engine.dispose()
