"""One server for pages and API: on this machine alone, for this machine's pages alone."""

import gzip
import json
import socket
from http.client import HTTPConnection
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from apps.conftest import SampleStore
from longhaul_viewer.server import streamlit_options

STREAM = "/_stcore/stream"
"""Where pages open their websocket; all that they show comes through it."""
PATHS = ("/", "/runs", "/_stcore/health", "/api/runs", "/api/openapi.json")


def get(viewer: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and body of an answer."""
    connection = HTTPConnection(viewer.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_streamlit_stays_on_this_machine_and_reports_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    options = streamlit_options(port=1234, open_browser=True)
    assert options["server.address"] == "127.0.0.1"
    assert options["server.allowedHosts"] == ["127.0.0.1", "localhost"]
    assert options["browser.gatherUsageStats"] is False
    assert options["server.headless"] is True  # there is no display to open a window on


@pytest.mark.slow
def test_the_api_answers_beside_the_pages(viewer: str, sample: SampleStore) -> None:
    status, body = get(viewer, "/api/runs")
    assert (status, [run["run_id"] for run in json.loads(body)]) == (200, [sample.run_id])
    episode_id = sample.solved.summary.episode_id
    status, body = get(viewer, f"/api/episodes/{quote(episode_id)}")
    assert (status, json.loads(body)["summary"]["episode_id"]) == (200, episode_id)
    assert get(viewer, "/api/runs/none")[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_large_answers_of_the_api_are_compressed_once(viewer: str, coding: str) -> None:
    asked = Request(f"{viewer}/api/openapi.json", headers={"Accept-Encoding": coding})
    with urlopen(asked, timeout=10) as answer:
        body = answer.read()
    assert answer.headers.get_all("Vary") == ["Accept-Encoding"]
    if coding == "gzip":
        assert answer.headers["Content-Encoding"] == "gzip"
        body = gzip.decompress(body)
    assert json.loads(body)["info"]["version"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_only_names_of_this_machine_are_answered(viewer: str, path: str) -> None:
    own = viewer.removeprefix("http://")
    assert get(viewer, path, Host=own)[0] == 200
    assert get(viewer, path, Host="evil.example")[0] == 400
    assert get(viewer, path, Host=own, Origin=viewer)[0] == 200
    assert get(viewer, path, Host=own, Origin="http://evil.example")[0] == 403


@pytest.mark.slow
def test_only_pages_of_this_machine_open_the_stream(viewer: str) -> None:
    own = viewer.removeprefix("http://")
    assert handshake(viewer, host=own, origin=viewer) == 101
    assert handshake(viewer, host="evil.example", origin="http://evil.example") == 400
    assert handshake(viewer, host=own, origin="http://evil.example") == 403
    assert handshake(viewer, host=own, origin="http://127.0.0.1:1") == 403
    assert handshake(viewer, host=own, origin="http://localhost") == 403


@pytest.mark.slow
def test_no_other_site_shows_the_pages_in_a_frame(viewer: str) -> None:
    for path in PATHS:
        with urlopen(f"{viewer}{path}", timeout=60) as answer:
            assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'", path


@pytest.mark.slow
def test_nothing_listens_for_other_machines(viewer: str) -> None:
    port = int(viewer.rsplit(":", 1)[1])
    with socket.socket() as probe:
        # Every address of 127.0.0.0/8 is this machine; a server on all interfaces answers there.
        assert probe.connect_ex(("127.0.0.2", port)) != 0


def handshake(viewer: str, *, host: str, origin: str) -> int:
    """Status of the answer to a websocket's first line."""
    address, port = viewer.removeprefix("http://").split(":")
    lines = [
        f"GET {STREAM} HTTP/1.1",
        f"Host: {host}",
        f"Origin: {origin}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with socket.create_connection((address, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(4096).split()[1])
