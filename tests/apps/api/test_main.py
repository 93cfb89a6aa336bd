"""The command `api`: refuses to start with a sentence and an exit code, or really serves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from sqlalchemy import text

from apps.conftest import SampleStore
from longhaul_api.app import create_app
from longhaul_api.main import create_http_server, main
from longhaul_api.settings import ApiSettings
from longhaul_core.serving import bound_socket
from longhaul_core.store.schema import VERSION_TABLE
from longhaul_core.store.session import open_store, read_only_engine
from ports import free_port
from running_servers import running_as
from slow_clients import HALF_A_HEADER, last_words


def test_a_missing_store_is_exit_code_4(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", str(tmp_path / "none.db")]) == 4
    assert "there is no store at" in capfd.readouterr().err


def test_a_newer_store_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "newer.db"
    engine = open_store(path)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    engine.dispose()
    assert main(["--store", str(path)]) == 4
    assert "newer version of Longhaul" in capfd.readouterr().err


def test_a_taken_port_is_exit_code_3(
    sample: SampleStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--store", sample.url, "--port", port]) == 3
    assert "stop the program that has it" in capfd.readouterr().err


def test_an_open_address_without_a_token_is_exit_code_2(
    sample: SampleStore, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--store", sample.url, "--host", "0.0.0.0"]) == 2
    assert "--token" in capfd.readouterr().err


def test_a_client_that_sends_no_whole_header_is_closed(sample: SampleStore) -> None:
    settings = ApiSettings(header_seconds=0.2)
    app = create_app(read_only_engine(sample.url), settings)
    listener = bound_socket("127.0.0.1", 0)
    with running_as(create_http_server(app, listener, settings), listener) as address:
        assert last_words(address, sent=HALF_A_HEADER).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(("options", "niceness"), [((), 10), (("--nice", "3"), 3)])
def test_it_serves_until_it_is_interrupted_and_stands_back_for_other_programs(
    sample: SampleStore, options: tuple[str, ...], niceness: int
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "longhaul_api.main", "--store", sample.url]
    process = subprocess.Popen(
        [*command, "--port", str(port), *options],
        env=os.environ | {"LONGHAUL_API_TOKEN": "a-token-of-the-environment"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert fetch(port, token=None) == (401, None)
        status, runs = fetch(port, token="a-token-of-the-environment")
        assert status == 200
        assert isinstance(runs, list)
        expected = min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, 19)
        loop, *workers = sorted(
            int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()
        )
        assert os.getpriority(os.PRIO_PROCESS, loop) == expected
        assert os.getpriority(os.PRIO_PROCESS, workers[-1]) == expected
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"http://127.0.0.1:{port}" in errors
    assert "a-token-of" not in errors


def test_a_niceness_that_puts_it_first_is_exit_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--nice", "-5"])
    assert "--nice" in capfd.readouterr().err


def fetch(port: int, *, token: str | None) -> tuple[int, object]:
    """Status and JSON of `/runs`; waits for a server that is starting."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/runs")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    for _ in range(1_800):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            with refusal:
                return refusal.code, None
        except URLError:
            time.sleep(0.1)
    raise AssertionError("the server did not start within 180 s")
