"""`/sql` over HTTP: answers, refusals, and that a page of somebody else cannot ask."""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import anyio
import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from apps.conftest import SampleStore
from local_workers import until
from longhaul_api.app import create_app
from longhaul_api.routes import sql
from longhaul_api.settings import ApiSettings
from longhaul_core.sql_box.box import MOST_AT_ONCE, QueryResult
from longhaul_core.store.session import read_only_engine


@contextmanager
def opened(
    sample: SampleStore, *, token: str | None = None, has_sql: bool = True
) -> Generator[TestClient]:
    engine = read_only_engine(sample.url)
    settings = ApiSettings(
        tokens={} if token is None else {"": token}, sql_store=sample.url if has_sql else None
    )
    app = create_app(engine, settings)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client
    engine.dispose()


@pytest.fixture(scope="module")
def client(sample: SampleStore) -> Iterator[TestClient]:
    with opened(sample) as client:
        yield client


def test_a_select_is_answered(client: TestClient, sample: SampleStore) -> None:
    answer = client.post("/sql", json={"sql": "SELECT run_id, x'00ff' FROM run_summary"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == [[sample.run_id, "0x00ff"]]
    assert answer.json()["truncated"] is None


def test_what_is_left_out_is_said(client: TestClient) -> None:
    answer = client.post("/sql", json={"sql": "SELECT episode_id FROM steps", "rows": 2})
    assert len(answer.json()["rows"]) == 2
    assert answer.json()["truncated"] == "rows"


def test_a_mistake_says_where_it_is(client: TestClient) -> None:
    answer = client.post("/sql", json={"sql": "SELECT adventage\nFROM steps"})
    assert answer.status_code == 422
    assert "did you mean advantage" in answer.json()["detail"]
    assert "line 1, column 8" in answer.json()["detail"]


def test_a_write_is_refused(client: TestClient) -> None:
    answer = client.post("/sql", json={"sql": "DELETE FROM runs"})
    assert answer.status_code == 422
    assert "DELETE is not allowed" in answer.json()["detail"]


def test_limits_have_limits(client: TestClient) -> None:
    asked = client.post("/sql", json={"sql": "SELECT 1", "seconds": 3600})
    assert asked.status_code == 422


def test_a_question_of_the_cookbook_is_answered(client: TestClient, sample: SampleStore) -> None:
    names = [one["name"] for one in client.get("/sql/cookbook").json()]
    assert len(names) == len(set(names)) >= 26
    asked = client.get("/sql/cookbook/worst_episodes", params={"param": f"run={sample.run_id}"})
    assert asked.status_code == 200, asked.text
    assert asked.json()["columns"][0] == "episode_id"
    assert asked.json()["rows"]
    assert client.get("/sql/cookbook/worst_episodes").status_code == 422
    assert client.get("/sql/cookbook/nothing").status_code == 404
    unknown = client.get("/sql/cookbook/dropped_by_memory", params={"param": "episode=x"})
    assert unknown.status_code == 422
    assert "no episode 'x' in the store" in unknown.json()["detail"]


def test_every_column_of_the_schema_can_be_selected(client: TestClient) -> None:
    for relation in client.get("/sql/schema").json():
        columns = ", ".join(f'"{column["name"]}"' for column in relation["columns"])
        sql = f'SELECT {columns} FROM "{relation["name"]}" LIMIT 1'
        answer = client.post("/sql", json={"sql": sql})
        assert answer.status_code == 200, answer.text


def test_a_page_of_another_origin_cannot_ask(client: TestClient) -> None:
    answer = client.post(
        "/sql", json={"sql": "SELECT 1"}, headers={"Origin": "http://evil.example"}
    )
    assert answer.status_code == 403


def test_who_has_no_token_cannot_ask_where_there_is_one(sample: SampleStore) -> None:
    with opened(sample, token="a token of some length") as api:
        assert api.post("/sql", json={"sql": "SELECT 1"}).status_code == 401


def test_without_a_role_for_it_it_says_what_to_do(sample: SampleStore) -> None:
    with opened(sample, has_sql=False) as api:
        answer = api.post("/sql", json={"sql": "SELECT 1"})
    assert answer.status_code == 503
    assert "fence-role" in answer.json()["detail"]


def test_statements_that_wait_hold_up_no_other_answer_and_are_refused_beyond_a_number(
    sample: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    answer = QueryResult(columns=("n",), rows=((1,),), truncated=None, seconds=0.0, num_bytes=1)

    def ask_slowly(*_: object, **__: object) -> QueryResult:
        assert goes_on.wait(60)
        return answer

    monkeypatch.setattr(sql, "run_query", ask_slowly)

    async def asked(app: FastAPI, most: int) -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def ask() -> httpx.Response:
                return await client.post("/sql", json={"sql": "SELECT 1"})

            waiting = [asyncio.create_task(ask()) for _ in range(most)]
            places: anyio.CapacityLimiter = app.state.sql_places
            await until(lambda: places.statistics().tasks_waiting == sql.MOST_WAITING)
            refused = await ask()
            assert refused.status_code == 503
            assert "4 statements run and 16 wait already" in refused.json()["detail"]
            assert (await client.get("/sql/schema")).status_code == 200
            goes_on.set()
            return [(await one).status_code for one in waiting]

    engine = read_only_engine(sample.url)
    app = create_app(engine, ApiSettings(sql_store=sample.url))
    most = MOST_AT_ONCE + sql.MOST_WAITING
    assert asyncio.run(asked(app, most)) == [200] * most
    engine.dispose()
