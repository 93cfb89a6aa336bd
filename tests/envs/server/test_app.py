"""Tests for `longhaul_envs.server.app` and `guard`: what HTTP shows of the table, and to whom."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from environment_server import TOKEN, RunningServer, client_of, running_server
from longhaul_core.errors import ConfigError
from longhaul_core.gym.output import MAX_CHARACTERS_OF_A_CALL
from longhaul_envs.server.app import PATHS
from longhaul_envs.server.openapi import document
from longhaul_envs.server.protocol import MAX_BODY_BYTES
from longhaul_envs.server.settings import ServerSettings
from served_world import STEPS

CHAIN = "served/Chain-v0"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        {"id": CHAIN, "limits": {"num_workers": 2, "step_seconds": 5.0}},
        {"id": "served/Drawn-v0", "limits": {"num_workers": 1}},
        folder=tmp_path_factory.mktemp("server"),
        settings={"tokens": {"mine": TOKEN, "theirs": f"{TOKEN}-of-others"}},
        table={"sessions_per_client": 6},
    ) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with client_of(server, token=TOKEN, name="test") as client:
        yield client


@pytest.fixture
def session(client: httpx.Client) -> Iterator[str]:
    """A session that is reset."""
    session_id = opened(client)
    yield session_id
    client.delete(f"/v1/sessions/{session_id}")


def opened(client: httpx.Client, environment: str = CHAIN) -> str:
    created = client.post("/v1/sessions", json={"environment": environment})
    assert created.status_code == 201, created.text
    session_id = created.json()["session_id"]
    reset = client.post(f"/v1/sessions/{session_id}/reset", json={"task_id": "chain/1", "seed": 1})
    assert reset.status_code == 200
    return session_id


def test_an_episode_is_played_over_http(client: httpx.Client, session: str) -> None:
    path = f"/v1/sessions/{session}"
    rewards: list[float] = []
    stepped: dict[str, Any] = {}
    for number in range(1, STEPS + 1):
        stepped = client.post(f"{path}/step", json={"number": number, "action": "wait"}).json()
        rewards.append(stepped["reward"])
        assert client.get(f"{path}/observation").json() == stepped["observation"]
        listed = client.get(f"{path}/actions").json()["admissible_actions"]
        assert listed == stepped["observation"]["admissible_actions"]

    assert rewards == [n / 8 for n in range(1, STEPS + 1)]
    assert stepped["terminated"]
    drawn = client.get(f"{path}/render")
    assert drawn.headers["content-type"] == "image/png"
    assert drawn.content.startswith(b"\x89PNG")
    assert client.delete(path).status_code == 204
    assert client.delete(path).status_code == 204
    gone = client.post(f"{path}/step", json={"number": 1, "action": "wait"})
    assert (gone.status_code, gone.json()["cause"]) == (410, "closed")


def test_a_batch_has_a_status_for_each_step(client: httpx.Client, session: str) -> None:
    steps = [
        {"session_id": session, "number": 1, "action": "wait"},
        {"session_id": "unknown", "number": 1, "action": "wait"},
        {"session_id": session, "number": 7, "action": "wait"},
    ]
    answered = client.post("/v1/steps", json={"steps": steps})

    assert answered.status_code == 200
    results = answered.json()["results"]
    assert [one["status"] for one in results] == [200, 410, 409]
    assert results[0]["result"]["reward"] == 1 / 8
    assert results[1]["problem"]["cause"] == "unknown"


def test_a_batch_does_not_wait_for_a_slow_step_which_can_be_asked_for_alone(
    client: httpx.Client,
) -> None:
    ids = [opened(client) for _ in range(2)]
    steps = [
        {"session_id": ids[0], "number": 1, "action": "slow"},
        {"session_id": ids[1], "number": 1, "action": "wait"},
    ]
    statuses = [
        one["status"] for one in client.post("/v1/steps", json={"steps": steps}).json()["results"]
    ]
    alone = client.post(f"/v1/sessions/{ids[0]}/step", json={"number": 1, "action": "slow"})

    assert statuses[0] == 202
    assert alone.status_code == 200
    assert alone.json()["reward"] == 1 / 8
    for session_id in ids:
        client.delete(f"/v1/sessions/{session_id}")


def test_an_episode_that_fails_is_gone_with_its_cause_and_no_traceback(
    server: RunningServer, client: httpx.Client
) -> None:
    session_id = opened(client)
    failed = client.post(f"/v1/sessions/{session_id}/step", json={"number": 1, "action": "raise"})

    assert failed.status_code == 410
    assert failed.json() == {
        "cause": "environment_error",
        "detail": "environment.step: RuntimeError: as it was asked to",
    }
    assert 'raise RuntimeError("as it was asked to")' in server.log.read_text()


def test_an_episode_that_prints_fills_no_log(
    server: RunningServer, client: httpx.Client, session: str
) -> None:
    before = len(server.log.read_text())
    client.post(f"/v1/sessions/{session}/step", json={"number": 1, "action": "print"})
    printed = server.log.read_text()[before:]

    assert "the rest that this call prints is left out" in printed
    assert len(printed) < 2 * MAX_CHARACTERS_OF_A_CALL


def test_a_hanging_step_is_gone_with_a_timeout(client: httpx.Client) -> None:
    session_id = opened(client)
    failed = client.post(f"/v1/sessions/{session_id}/step", json={"number": 1, "action": "hang"})

    assert (failed.status_code, failed.json()["cause"]) == (410, "timeout")


def test_a_quota_is_refused_with_the_time_to_ask_again(server: RunningServer) -> None:
    with client_of(server, token=TOKEN, name="greedy") as client:
        ids = [opened(client) for _ in range(6)]
        refused = client.post("/v1/sessions", json={"environment": CHAIN})
        for session_id in ids:
            client.delete(f"/v1/sessions/{session_id}")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


@pytest.mark.parametrize(
    ("content", "headers", "status", "words"),
    [
        (b"{", JSON, 400, "is not JSON"),
        (b'{"environment": "\xff"}', JSON, 400, "is not JSON"),
        (b'{"environment": 3}', JSON, 422, r"Expected `str`, got `int` - at `$.environment`"),
        (b"{}", JSON, 422, "missing required field `environment`"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "send application/json"),
        (
            gzip.compress(b"{}", mtime=0),
            {**JSON, "Content-Encoding": "gzip"},
            415,
            "'gzip' is not read",
        ),
        (b" " * (MAX_BODY_BYTES + 1), JSON, 413, f"{MAX_BODY_BYTES} bytes at most"),
        (b'{"environment": "os:system"}', JSON, 404, CHAIN),
    ],
    ids=["no JSON", "no UTF-8", "wrong type", "missing", "text", "compressed", "large", "unknown"],
)
def test_a_wrong_request_is_refused_with_its_status(
    client: httpx.Client, content: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    refused = client.post("/v1/sessions", content=content, headers=headers)

    assert refused.status_code == status
    assert words in refused.json()["detail"]


def test_a_body_without_a_length_is_limited_too(client: httpx.Client) -> None:
    refused = client.post("/v1/sessions", content=(b" " * 2**16 for _ in range(20)), headers=JSON)

    assert refused.status_code == 413


def test_an_action_of_100_kb_and_of_other_scripts_reaches_the_environment(
    client: httpx.Client, session: str
) -> None:
    for number, action in enumerate(["x" * 100_000, "行く\x00\u202e</action>", ""], 1):
        stepped = client.post(
            f"/v1/sessions/{session}/step", json={"number": number, "action": action}
        )
        assert stepped.status_code == 200


def test_another_version_of_the_protocol_is_refused_by_name(client: httpx.Client) -> None:
    refused = client.get("/v2/environments")

    assert refused.status_code == 404
    assert "protocol 1 is spoken here, under /v1" in refused.json()["detail"]
    assert client.get("/health").json()["protocols"] == [1]


def test_fields_that_a_newer_client_sends_are_ignored(client: httpx.Client) -> None:
    created = client.post("/v1/sessions", json={"environment": CHAIN, "colour": "blue"})

    assert created.status_code == 201
    client.delete(f"/v1/sessions/{created.json()['session_id']}")


@pytest.mark.parametrize("token", ["", f"{TOKEN}x", TOKEN[:-1]], ids=["none", "longer", "shorter"])
def test_without_the_token_nothing_answers_but_health(server: RunningServer, token: str) -> None:
    with client_of(server, token=token) as client:
        for operation in PATHS:
            path = operation.path.replace("{session_id}", "a")
            answered = client.request(operation.method, path, json={})
            expected = 200 if operation.name == "health" else 401
            assert answered.status_code == expected, operation.path
        assert client.get("/v7/anything").status_code == 401


def test_a_session_belongs_to_the_token_that_opened_it(server: RunningServer, session: str) -> None:
    with client_of(server, token=f"{TOKEN}-of-others", name="test") as client:
        assert client.get(f"/v1/sessions/{session}/observation").status_code == 410


def test_web_pages_are_turned_away(client: httpx.Client) -> None:
    rebound = client.get("/v1/environments", headers={"Host": "evil.example:80"})
    calling = client.get("/v1/environments", headers={"Origin": "http://evil.example"})

    assert (rebound.status_code, calling.status_code) == (400, 403)


def test_a_machine_is_called_by_its_address_and_by_no_name_of_others(client: httpx.Client) -> None:
    statuses = {
        host: client.get("/v1/environments", headers={"Host": host}).status_code
        for host in ("10.0.0.7:8300", "[fd00::7]:8300", "localhost", "10.0.0.7.evil.example")
    }

    assert list(statuses.values()) == [200, 200, 200, 400]


def test_a_body_that_is_nested_too_deep_is_refused(client: httpx.Client) -> None:
    deep = b'{"environment":"x","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    refused = client.post("/v1/sessions", content=deep, headers=JSON)

    assert (refused.status_code, refused.json()["cause"]) == (400, "no_json")


def test_metrics_count_calls_sessions_and_workers(client: httpx.Client, session: str) -> None:
    text = client.get("/metrics").text

    assert f'longhaul_sessions_open{{environment="{CHAIN}"}}' in text
    assert f'longhaul_workers{{environment="{CHAIN}"}} 2.0' in text
    assert f'longhaul_call_seconds_count{{call="reset",environment="{CHAIN}"}}' in text


def test_tasks_come_in_pages(client: httpx.Client) -> None:
    def page(**query: Any) -> httpx.Response:  # noqa: ANN401
        return client.get("/v1/tasks", params={"environment": CHAIN, "split": "test", **query})

    first, second = page(limit=2).json(), page(offset=2, limit=2).json()

    assert first["total"] == 2000
    assert [task["task_id"] for task in first["tasks"] + second["tasks"]] == [
        f"chain/{20_000 + n}" for n in range(4)
    ]
    assert page(limit=5000).status_code == 422
    assert page(split="exam").status_code == 422


def test_a_server_that_starts_or_ends_says_when_to_ask_again(tmp_path: Path) -> None:
    settings = {"drain_seconds": 600}
    with running_server({"id": CHAIN}, folder=tmp_path, settings=settings, waits=False) as server:
        with client_of(server) as client:
            starting = client.get("/health")
            refused = client.post("/v1/sessions", json={"environment": CHAIN})
            server.wait_until_ready()
            session_id = opened(client)
            server.process.terminate()
            while (draining := client.get("/health")).json()["status"] == "ready":
                pass
            late = client.post("/v1/sessions", json={"environment": CHAIN})
            stepped = client.post(
                f"/v1/sessions/{session_id}/step", json={"number": 1, "action": "wait"}
            )
            client.delete(f"/v1/sessions/{session_id}")
        assert server.process.wait(120) == 0

    for answered in (starting, refused, draining, late):
        assert (answered.status_code, answered.headers["retry-after"]) == (503, "1")
    assert refused.json()["cause"] == "starting"
    assert late.json()["cause"] == "draining"
    assert stepped.status_code == 200


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' can be reached from other machines"):
        ServerSettings(host="0.0.0.0")
    assert ServerSettings(host="0.0.0.0", tokens={"": TOKEN})
    with pytest.raises(ConfigError, match="16 characters or more"):
        ServerSettings(tokens={"": "short"})
    with pytest.raises(ConfigError, match="two names have the same token"):
        ServerSettings(tokens={"a": TOKEN, "b": TOKEN})


def test_the_document_is_that_of_version_1() -> None:
    """What is written there is what clients of version 1 were built on: add to it, change nothing.

    After an addition: `python tests/envs/server/test_app.py`, and look at the difference.
    """
    assert json.loads(json.dumps(document(PATHS))) == json.loads(
        DOCUMENT.read_text(encoding="utf-8")
    )


DOCUMENT = Path(__file__).with_name("protocol_1.json")

if __name__ == "__main__":
    DOCUMENT.write_text(json.dumps(document(PATHS), indent=1) + "\n", encoding="utf-8")
