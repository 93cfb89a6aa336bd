"""Who is let in: names, origins, tokens."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response

from apps.conftest import SampleStore
from longhaul_api.app import create_app
from longhaul_api.guard import Guard
from longhaul_api.settings import ApiSettings
from longhaul_core.errors import ConfigError
from longhaul_core.store.session import read_only_engine

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def guarded(sample: SampleStore) -> Iterator[TestClient]:
    engine = read_only_engine(sample.url)
    settings = ApiSettings(host="0.0.0.0", tokens={"": TOKEN}, extra_hosts=("Trainer.example",))
    with TestClient(create_app(engine, settings), base_url="http://trainer.example:8000") as client:
        yield client
    engine.dispose()


@pytest.fixture(scope="module")
def local(sample: SampleStore) -> Iterator[TestClient]:
    engine = read_only_engine(sample.url)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://localhost:8000") as client:
        yield client
    engine.dispose()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_opens_the_door(guarded: TestClient, scheme: str) -> None:
    answer = guarded.get("/runs", headers={"Authorization": f"{scheme} {TOKEN}"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        *("", "Bearer", "Bearer wrong", "Bearer é", f"Basic {TOKEN}", TOKEN),
        *(f"Bearer {TOKEN}x", f"Bearer  {TOKEN}", f"Bearer {TOKEN.upper()}"),
    ],
)
def test_anything_else_does_not(guarded: TestClient, header: str) -> None:
    answer = guarded.get("/runs", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_head_request_is_guarded_too(guarded: TestClient) -> None:
    assert guarded.head("/runs").status_code == 401


def test_a_token_in_the_address_is_not_read(guarded: TestClient) -> None:
    assert guarded.get("/runs", params={"token": TOKEN}).status_code == 401


def test_without_the_token_even_the_description_is_closed(guarded: TestClient) -> None:
    assert guarded.get("/openapi.json").status_code == 401
    assert guarded.get("/").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost.x"])
def test_a_rebound_name_is_refused(local: TestClient, host: str) -> None:
    assert local.get("/runs", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:9", "[::1]:8000", "LOCALHOST:80", "192.0.2.7:8000"]
)
def test_names_of_this_machine_and_addresses_are_let_in(local: TestClient, host: str) -> None:
    assert local.get("/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://"])
def test_a_page_from_elsewhere_may_not_ask(local: TestClient, origin: str) -> None:
    assert local.get("/runs", headers={"Origin": origin}).status_code == 403


def test_a_page_of_this_machine_may(local: TestClient) -> None:
    answer = local.get("/runs", headers={"Origin": "http://localhost:8501"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 422),  # let in, and then refused for its empty body
        ("http://localhost:8000", 422),
        ("http://LOCALHOST:8000", 422),
        ("http://localhost:8501", 403),
        ("http://localhost", 403),
        ("http://127.0.0.1:8000", 403),
    ],
)
def test_only_this_servers_own_pages_may_send(
    local: TestClient, origin: str | None, expected: int
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert local.post("/sql", json={}, headers=headers).status_code == expected


def test_a_forwarded_port_may_send(local: TestClient) -> None:
    headers = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert local.post("/sql", json={}, headers=headers).status_code == 422


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("evil.example", 400)])
def test_no_other_site_shows_an_answer_in_a_frame(
    local: TestClient, host: str, status: int
) -> None:
    answer = local.get("/runs", headers={"Host": host})
    assert answer.status_code == status
    assert answer.headers.get_list("content-security-policy") == ["frame-ancestors 'self'"]


def test_a_policy_that_an_answer_has_stays() -> None:
    page = Response(headers={"Content-Security-Policy": "sandbox"})
    client = TestClient(Guard(page, ApiSettings()), base_url="http://localhost:8000")
    assert client.get("/").headers.get_list("content-security-policy") == ["sandbox"]


def test_another_address_without_a_token_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' can be reached.*no token"):
        ApiSettings(host="0.0.0.0")


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"port must lie.*70000.*has 3"):
        ApiSettings(port=70000, tokens={"": "abc"})
