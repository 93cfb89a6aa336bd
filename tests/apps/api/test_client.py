"""The client, against the real app and against the program `api`."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

import longhaul_api.client as client_module
from apps.api.conftest import StartApi
from apps.conftest import SampleStore
from longhaul_api.app import create_app
from longhaul_api.client import Client
from longhaul_api.routes.events import SECONDS_BETWEEN_SIGNS
from longhaul_api.settings import ApiSettings
from longhaul_core.errors import ConfigError, StoreError
from longhaul_core.exchange import EpisodeWhere
from longhaul_core.store import RunEnded, StoreWriter, queries
from longhaul_core.store.queries import replay
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import FailureCause
from store_samples import make_record, make_trajectory, run_started

TOKEN = "a token of the test"


@pytest.fixture(scope="module")
def app(sample: SampleStore) -> Iterator[TestClient]:
    engine = read_only_engine(sample.url)
    app = create_app(engine, ApiSettings(tokens={"": TOKEN}))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as http:
        yield http
    engine.dispose()


@pytest.fixture
def client(app: TestClient, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(client_module, "ROWS_PER_PAGE", 7)  # every list has several pages
    return Client(http=app)  # pyright: ignore[reportArgumentType]  # it asks as an httpx.Client does


@pytest.fixture
def session(sample: SampleStore) -> Iterator[Session]:
    engine = read_only_engine(sample.url)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_answers_are_those_of_the_queries(
    client: Client, sample: SampleStore, session: Session
) -> None:
    run_id, episode_id = sample.run_id, sample.solved.summary.episode_id
    assert list(client.runs()) == queries.list_runs(session)
    assert client.run(run_id) == queries.get_run(session, run_id=run_id)
    assert client.curve(run_id) == queries.training_curve(session, run_id=run_id)
    assert client.metric_names(run_id) == queries.metric_names(session, run_id=run_id)
    names = client.metric_names(run_id)[:2]
    assert client.metrics(run_id, *names) == queries.metric_series(
        session, run_id=run_id, names=names
    )
    assert client.evaluations(run_id) == queries.evaluations(session, run_id=run_id)
    assert client.episode(episode_id, tokens=True) == queries.get_episode(
        session, episode_id=episode_id
    )
    assert client.step(episode_id, 1) == replay.get_step(
        session, episode_id=episode_id, step_index=1
    )
    assert client.config(run_id).config["name"] == "textcraft"
    assert client.audits(run_id) == []
    assert list(client.labels(run_id)) == []
    hits = queries.search_steps(session, words="oak", run_id=run_id, limit=1000).rows
    assert tuple(client.search("oak", run_id=run_id)) == hits
    assert client.storage() == queries.storage_stats(session)


def test_pages_follow_each_other(client: Client, sample: SampleStore, session: Session) -> None:
    where = EpisodeWhere(success=True, phase="train")
    page = queries.list_episodes(
        session,
        where=where.filter_of(sample.run_id),
        sort="num_steps",
        descending=False,
        limit=1000,
    )
    found = list(client.episodes(sample.run_id, where=where, sort="num_steps", descending=False))
    assert tuple(found) == page.rows
    assert len(found) > 7
    failed = list(client.failures(sample.run_id, cause=FailureCause.ENVIRONMENT_ERROR))
    assert len(failed) == 4
    assert [row.episode_id for row in failed] == [
        row.episode_id for row in client.episodes(sample.run_id, where=EpisodeWhere(failed=True))
    ]
    groups = list(client.groups(sample.run_id, phase="train"))
    assert len(groups) == 48
    first = client.group(sample.run_id, training_step=1, group_index=0)
    assert first.summary in groups


def test_an_export_is_what_the_address_sends(
    client: Client, app: TestClient, sample: SampleStore
) -> None:
    where = EpisodeWhere(success=True)
    pieces = b"".join(client.export(sample.run_id, format="conversations", where=where))
    asked = {"format": "conversations", "success": "true"}
    assert pieces == app.get(f"/runs/{sample.run_id}/export", params=asked).content
    assert len(pieces) > 1000


def test_errors_are_those_of_the_queries(
    client: Client, app: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LookupError, match="there is no run 'none'"):
        client.run("none")
    with pytest.raises(LookupError, match="there is no run 'none'"):
        list(client.events("none"))
    with pytest.raises(ConfigError, match="sort"):
        list(client.episodes("none", sort="taste"))  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(app.headers, "Authorization", "Bearer another")
    with pytest.raises(PermissionError, match="give the token"):
        client.storage()


def test_a_run_that_is_over_is_told_and_ended(client: Client, sample: SampleStore) -> None:
    changes = list(client.events(sample.run_id, cursor=0))
    told = [change for each in changes for change in each.rows]
    assert {"episode", "credit", "metrics", "run"} <= {change.kind for change in told}
    assert [change.commit_number for change in told] == sorted(
        change.commit_number for change in told
    )
    assert changes[-1].status == "finished"
    half = changes[0].cursor // 2
    later = [change for each in client.events(sample.run_id, cursor=half) for change in each.rows]
    assert later == [change for change in told if change.commit_number > half]


def episode_ids(changes: list[queries.Changes]) -> list[str | None]:
    return [row.episode_id for each in changes for row in each.rows if row.kind == "episode"]


def test_a_live_run_is_followed_across_servers(tmp_path: Path, running_api: StartApi) -> None:
    """Each episode is told once, although the server is killed and started again in between."""
    store = str(tmp_path / "store.db")
    writer = StoreWriter(store)
    writer.write([run_started("run")])
    first = running_api(store)
    records = [make_record(make_trajectory(sample_index=index)) for index in range(6)]
    records = [replace(record, run_id="run") for record in records]
    seen: list[queries.Changes] = []

    def follow() -> None:
        with Client(first.address) as client:
            seen.extend(client.events("run", cursor=0))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    for index, record in enumerate(records):
        writer.write([record])
        time.sleep(0.2)
        if index == 2:
            first.kill()
            first = running_api(store, port=first.port)
    ended = RunEnded(run_id="run", attempt=0, status="finished", message="", ended_at=1.0)
    writer.write([ended])
    follower.join(timeout=300)
    writer.close()
    assert not follower.is_alive()
    assert episode_ids(seen) == [record.episode_id for record in records]
    assert seen[-1].status == "finished"


CHANGES = (
    b'id: 7\nevent: changes\ndata: {"cursor": 7, "more": false, "rows": [], "status": "running", '
    b'"heartbeat_at": 1.0}\n\n'
)
END = httpx.Response(200, content=b'event: end\ndata: {"status": "finished"}\n\n')
HELD = httpx.Response(503, json={"detail": "the store is held"})


class Breaking(httpx.SyncByteStream):
    """One event, a time without any, and then a connection that breaks."""

    def __init__(self, *, quiet_seconds: float = 0.0) -> None:
        self.quiet_seconds = quiet_seconds

    def __iter__(self) -> Iterator[bytes]:
        yield CHANGES
        time.sleep(self.quiet_seconds)
        raise httpx.ReadError("the connection broke")


def followed(answers: Sequence[httpx.Response]) -> tuple[list[int], list[httpx.Request]]:
    """The cursors that a client sees of a server with these answers, and what it asked."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answers[len(asked) - 1]

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1")
    with http, Client(http=http) as client:
        return [changes.cursor for changes in client.events("run", cursor=0)], asked


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(client_module, "SECONDS_BETWEEN_TRIES", 0.0)
    return monkeypatch


def test_a_run_that_was_quiet_for_long_is_followed_across_a_break(
    quick: pytest.MonkeyPatch,
) -> None:
    quick.setattr(client_module, "SECONDS_TO_RETURN", 0.1)
    broken = httpx.Response(200, stream=Breaking(quiet_seconds=0.3))
    cursors, asked = followed([broken, END])
    assert cursors == [7]
    assert [request.url.params["cursor"] for request in asked] == ["0", "7"]


def test_a_store_that_is_held_for_a_moment_ends_no_follower(quick: pytest.MonkeyPatch) -> None:
    broken = httpx.Response(200, stream=Breaking())
    cursors, asked = followed([broken, HELD, END])
    assert (cursors, len(asked)) == ([7], 3)
    quick.setattr(client_module, "SECONDS_TO_RETURN", 0.0)
    with pytest.raises(StoreError, match="the store is held"):
        followed([httpx.Response(200, stream=Breaking()), *[HELD] * 1000])


def test_a_connection_on_which_no_sign_of_life_comes_is_given_up() -> None:
    _, (request,) = followed([END])
    assert request.extensions["timeout"]["read"] > 2 * SECONDS_BETWEEN_SIGNS
