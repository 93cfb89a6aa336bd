"""The client package: what a program reports, to a real gateway and to none."""

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar, TypedDict

import pytest

import longhaul
from longhaul_core.types import Trajectory
from longhaul_trainer.gateway.dialects.credit import credit_of
from longhaul_trainer.gateway.exchange import CreditReport
from longhaul_trainer.play.programs.command import CommandProgram
from program_house import House

SOURCE = Path(longhaul.__file__)

PLAYS = """
import json, os, urllib.request
import longhaul

def call(text):
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps({**body, **longhaul.extra_body(agent="scout")}).encode(),
        headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request).read()

longhaul.step(anchor_state="the start \u2190")
call(longhaul.task()["fault"])
longhaul.step(reward=0.25, anchor_state="further on", agent="scout")
call("and now?")
longhaul.reward(0.5, success=True)
longhaul.step(done=True)
try:
    longhaul.step(reward=float("nan"))
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with House.open() as house:
        yield house


def test_what_a_program_reports_is_in_its_trajectory(house: House) -> None:
    program = CommandProgram(
        [sys.executable, "-c", PLAYS],
        environ={"http_proxy": "http://127.0.0.1:9"},  # nobody listens: it is not asked
        deadline_seconds=60,
    )
    outcome = house.played("where am I?", program=program)
    house.run(program.close())

    assert isinstance(outcome, Trajectory), outcome.message
    assert [step.reward for step in outcome.steps] == [0.25, 0.5]
    assert [step.observation.anchor_state for step in outcome.steps] == [
        "the start ←",
        "further on",
    ]
    assert outcome.steps[0].observation.text == "where am I?"
    assert [call.agent for step in outcome.steps for call in step.calls] == ["scout", "scout"]
    assert outcome.success


def test_a_program_that_nobody_trains_runs_and_is_warned_once() -> None:
    script = (
        "import longhaul\n"
        "longhaul.step(reward=1.0)\n"
        "longhaul.reward(1.0)\n"
        "print(longhaul.task(), longhaul.headers(agent='a'), longhaul.extra_body(agent='a'))\n"
    )
    environ = {name: value for name, value in os.environ.items() if "LONGHAUL" not in name}
    ran = subprocess.run(
        [sys.executable, "-I", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == "None {} {}\n"
    assert ran.stderr.count("Warning") == 1
    assert "<string>:2: UserWarning: LONGHAUL_URL and LONGHAUL_KEY are not set" in ran.stderr


class Said(TypedDict, total=False):
    reward: float
    anchor_state: str
    done: bool
    train: bool
    agent: str


@pytest.mark.parametrize(
    "said",
    [
        Said(reward=0.1, anchor_state="a: b", done=True, train=False, agent="scout"),
        Said(reward=0.0),
        Said(train=False),
        Said(),
    ],
)
def test_headers_and_body_say_the_same(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LONGHAUL_KEY", "k")
    headers = longhaul.headers(**said)
    names = {name.lower(): value for name, value in headers.items()}

    assert len(headers) == len(said)
    assert credit_of(names, {}) == credit_of({}, longhaul.extra_body(**said))
    assert credit_of(names, {}) == CreditReport(**said)


def test_what_is_no_header_or_no_reward_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGHAUL_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LONGHAUL_KEY", "k")
    with pytest.raises(ValueError, match="is no header; send it with extra_body"):
        longhaul.headers(anchor_state="two\nlines")
    with pytest.raises(ValueError, match="finite"):
        longhaul.headers(reward=float("inf"))


@contextmanager
def reached(
    handler: type[BaseHTTPRequestHandler], monkeypatch: pytest.MonkeyPatch
) -> Generator[None]:
    """A server that programs take for the gateway."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setenv("LONGHAUL_KEY", "k")
        monkeypatch.setenv("LONGHAUL_URL", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(410)
        self.end_headers()
        self.wfile.write(json.dumps({"error": "the episode is over"}).encode())

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_report_that_is_refused_or_cannot_be_sent_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        reached(_Refusing, monkeypatch),
        pytest.raises(longhaul.LonghaulError, match=r"step: HTTP 410: .*the episode is over"),
    ):
        longhaul.step(reward=1.0)
    with pytest.raises(longhaul.LonghaulError, match="refused"):
        longhaul.reward(1.0)


class _Forgetting(BaseHTTPRequestHandler):
    """Takes reports, and goes away before it has answered the first."""

    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        if len(self.keys) > 1:
            self.send_response(200)
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_report_whose_answer_is_lost_is_sent_again_under_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reached(_Forgetting, monkeypatch):
        longhaul.step(reward=1.0)
        longhaul.step(reward=1.0)

    first, again, another = _Forgetting.keys
    assert first == again != another


def test_the_client_is_small_and_takes_the_standard_library_of_python_3_9_alone() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    code = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}

    assert imported == {"http", "json", "math", "os", "urllib", "uuid", "warnings"}
    assert len(code) <= 100
