"""Tests for `longhaul_core.addresses`: who is asked directly where proxy variables are set."""

import os
import subprocess
import sys

import pytest

from file_server import WORDS, serving
from longhaul_core.addresses import direct, go_direct, is_loopback, proxy_variable

LOOPBACK = "localhost,127.0.0.1,::1"
PROXY = "http://127.0.0.1:9"
"""Nobody listens there: who asks through it gets no answer."""


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of this process, which names no proxy; they are as before afterwards."""
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    monkeypatch.setattr(os, "environ", environ)
    return environ


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.com", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ({"HTTP_PROXY": PROXY}, f"{LOOPBACK},10.0.0.5"),
        ({"all_proxy": PROXY, "NO_PROXY": "a.example"}, f"a.example,{LOOPBACK},10.0.0.5"),
        (
            {"https_proxy": PROXY, "NO_PROXY": "a.example, ::1", "no_proxy": "b.example"},
            "b.example,a.example,::1,localhost,127.0.0.1,10.0.0.5",
        ),
        ({"HTTP_PROXY": PROXY, "no_proxy": "a.example,*"}, "*"),
    ],
)
def test_both_spellings_get_what_either_had_and_this_machine(
    given: dict[str, str], listed: str
) -> None:
    assert direct(given, "10.0.0.5") == {"no_proxy": listed, "NO_PROXY": listed}


def test_nothing_is_set_where_no_proxy_is() -> None:
    assert direct({"NO_PROXY": "a.example", "HTTP_PROXY": ""}, "10.0.0.5") == {}


@pytest.mark.parametrize(
    ("given", "url", "expected"),
    [
        ({}, "http://a.example", None),
        ({"HTTP_PROXY": PROXY}, "http://a.example/v1", "HTTP_PROXY"),
        ({"HTTP_PROXY": PROXY, "http_proxy": PROXY}, "http://a.example", "http_proxy"),
        ({"HTTP_PROXY": PROXY}, "https://a.example", None),
        ({"HTTP_PROXY": PROXY, "no_proxy": "example"}, "http://a.example:8000", None),
        ({"HTTP_PROXY": PROXY}, "http://127.0.0.1:8000", None),
        ({"HTTP_PROXY": PROXY}, "http://[::1]:8000", None),
    ],
)
def test_the_variable_of_a_proxy_is_the_one_that_clients_read(
    environ: dict[str, str], given: dict[str, str], url: str, expected: str | None
) -> None:
    environ.update(given)

    assert proxy_variable(url) == expected


@pytest.mark.parametrize(
    "ask",
    [
        "import urllib.request as u; print(len(u.urlopen(url).read()))",
        "import requests; print(len(requests.get(url).content))",
        "import httpx; print(len(httpx.get(url).content))",
        "import asyncio, aiohttp\nasync def get():\n"
        "    async with aiohttp.ClientSession(trust_env=True) as s, s.get(url) as answer:\n"
        "        print(len(await answer.read()))\nasyncio.run(get())",
    ],
    ids=["urllib", "requests", "httpx", "aiohttp"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_what_a_process_starts_asks_this_machine_directly(
    environ: dict[str, str], ask: str, host: str
) -> None:
    environ |= {"HTTP_PROXY": PROXY, "http_proxy": PROXY, "NO_PROXY": "a.example"}
    go_direct()
    with serving() as server:
        url = server.url("words.txt").replace("127.0.0.1", host)
        done = subprocess.run(
            [sys.executable, "-c", f"url = {url!r}\n{ask}"],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.stdout.strip() == str(len(WORDS)), done.stderr
