"""The program `api`, as a user starts it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from apps.browser import wait_until_it_answers
from apps.conftest import SampleStore
from longhaul_api.app import create_app
from longhaul_api.settings import ApiSettings
from longhaul_core.store.session import read_only_engine
from ports import free_port


@dataclass(slots=True)
class RunningApi:
    """A process that serves a store."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)


StartApi = Callable[..., RunningApi]


@pytest.fixture
def running_api(quick_python: str, tmp_path: Path) -> Iterator[StartApi]:
    """Starts it over a store; what was started is killed at the end."""
    started: list[RunningApi] = []

    def start(store: str, *, port: int | None = None) -> RunningApi:
        port = port or free_port()
        log = tmp_path / f"api-{len(started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [quick_python, "-m", "longhaul_api.main", "--port", str(port)],
                env=os.environ | {"LONGHAUL_STORE": store},
                stderr=output,
            )
        started.append(RunningApi(process, port))
        wait_until_it_answers(f"http://127.0.0.1:{port}/openapi.json", process, log)
        return started[-1]

    yield start
    for running in started:
        running.kill()


@pytest.fixture(scope="module")
def client(sample: SampleStore) -> Iterator[TestClient]:
    """Asks the API over the sample store."""
    engine = read_only_engine(sample.url)
    with TestClient(create_app(engine, ApiSettings()), base_url="http://127.0.0.1") as client:
        yield client
    engine.dispose()
