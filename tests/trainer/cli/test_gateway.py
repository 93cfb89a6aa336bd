"""Tests for `trainer gateway`: a hosted model behind the gateway alone, played by hand."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import openai
import pytest
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from fakes import ByteChatRenderer, ScriptedPolicy
from hosted_endpoint import Hosted, hosted_by_gateway
from longhaul_core.errors import ConfigError, MachineError, StoreError
from longhaul_core.rollout import EpisodeLimits, Responder
from longhaul_core.store.queries import list_runs
from longhaul_core.store.records import EpisodeRecord
from longhaul_core.store.session import read_only_engine
from longhaul_trainer import stored_run
from longhaul_trainer.cli import gateway
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.main import app
from longhaul_trainer.cli.stored_runs import ask_to_stop
from longhaul_trainer.config import RunConfig, load_default_config
from longhaul_trainer.gateway.hosted import Endpoint
from training.launching import terminate_all


@pytest.fixture(scope="module")
def hosted() -> Iterator[Hosted]:
    with hosted_by_gateway(ScriptedPolicy(["north"])) as one:
        yield one


MAIN = "from longhaul_trainer.cli.main import main; main()"
WAITS_SHORTLY = "from longhaul_core.store import session; session.LOCK_WAIT_SECONDS = 0.1"
"""For a store that is held; the program tries again all the same."""


class Standing:
    """A gateway that stands in a process of its own."""

    def __init__(self, *given: str, folder: Path, key: str = "", first: str = "") -> None:
        given = ("gateway", *given, "--port", "0", "--store", str(folder / "by_hand.db"))
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{first}\n{MAIN}", *given],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "HOSTED_KEY": key},
        )
        self.read: list[str] = []

    @classmethod
    def before(cls, hosted: Hosted, folder: Path, *, first: str = "") -> "Standing":
        """In front of a hosted model."""
        given = ["--endpoint", hosted.openai, "--model", "auto", "--key-variable", "HOSTED_KEY"]
        given += ["--price-prompt", "1", "--price-reply", "1"]
        return cls(*given, folder=folder, key=hosted.key, first=first)

    def lines_until(self, word: str) -> list[str]:
        """Lines that it prints next, up to one with the word."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line.rstrip())
            self.read.append(line)
            if word in line:
                return lines
        raise AssertionError(f"it ended without {word!r}: {self.read}")

    def environ(self) -> dict[str, str]:
        """Variables of the next episode that is open."""
        lines = self.lines_until("AGL_KEY")
        exports = [line.removeprefix("export ") for line in lines if line.startswith("export")]
        return dict(line.split("=", 1) for line in exports)

    def interrupt(self) -> str:
        """The rest of what it prints when it is ended by Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=120)
        return rest


def ask(environ: dict[str, str]) -> str | None:
    """One call of a program that was given these variables."""
    with openai.OpenAI(
        base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"], max_retries=0
    ) as client:
        said = client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": "Which way?"}]
        )
    return said.choices[0].message.content


def post(url: str, *, key: str, body: object = None) -> httpx.Response:
    """What is answered to a body with a key."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(url, headers=headers, json=body, timeout=60, verify=False)


@pytest.mark.slow
def test_an_agent_is_tried_by_hand_and_its_episodes_are_stored(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    standing = Standing.before(hosted, tmp_path)
    try:
        first = standing.environ()
        assert "127.0.0.1" in first["NO_PROXY"].split(",")
        assert ask(first) == "north"
        done = post(
            f"{first['LONGHAUL_URL']}/step",
            key=first["LONGHAUL_KEY"],
            body={"reward": 0.5, "done": True},
        )
        assert done.status_code == 200, done.text
        ended = standing.lines_until("episode 0:")[-1]
        second = standing.environ()
        assert second["OPENAI_API_KEY"] != first["OPENAI_API_KEY"]
        with pytest.raises(openai.APIStatusError, match="the episode is over"):
            ask(first)

        address = second["OPENAI_BASE_URL"].partition("/e/")[0]
        opened = post(f"{address}/episodes", key=first["LONGHAUL_GATEWAY_KEY"])
        refused = post(f"{address}/episodes", key=second["OPENAI_API_KEY"])
        assert (opened.status_code, refused.status_code) == (201, 401)
        assert ask(opened.json()["environ"]) == "north"  # it posts no reward
        rest = standing.interrupt()
    finally:
        standing.process.kill()
        standing.process.wait()

    assert standing.process.returncode == 0, rest
    assert "return 0.5" in ended
    assert "2 episodes of run" in rest
    assert "it left no reward" in rest
    with Session(read_only_engine(tmp_path / "by_hand.db")) as session:
        (run,) = list_runs(session)
    assert (run.kind, run.status) == ("evaluate", "finished")
    assert (run.num_episodes, run.num_failed_episodes) == (1, 1)
    with read_only_engine(tmp_path / "by_hand.db").connect() as connection:
        costs = connection.exec_driver_sql("SELECT cost_usd FROM calls").scalars().all()
    assert len(costs) == 2
    assert all(costs)
    assert hosted.key.encode() not in (tmp_path / "by_hand.db").read_bytes()


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_gateway_whose_store_is_held(hosted: Hosted, tmp_path: Path) -> None:
    standing = Standing.before(hosted, tmp_path, first=WAITS_SHORTLY)
    try:
        assert ask(standing.environ()) == "north"
        with closing(sqlite3.connect(tmp_path / "by_hand.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            standing.process.send_signal(signal.SIGINT)
            standing.lines_until("another Ctrl-C")
            with pytest.raises(subprocess.TimeoutExpired):  # it waits for the store
                standing.process.wait(1)
            standing.process.send_signal(signal.SIGINT)
            standing.process.communicate(timeout=120)
    finally:
        standing.process.kill()
        standing.process.wait()

    assert standing.process.returncode == ExitCode.CANCELLED


def test_a_store_that_takes_no_sign_of_life_is_what_the_gateway_ends_by() -> None:
    is_open = asyncio.Event()

    def read(line: str) -> None:
        if "is open" in line:
            is_open.set()

    async def watch() -> None:
        await is_open.wait()
        raise StoreError("the store is gone")

    async def store(record: EpisodeRecord) -> None:
        raise AssertionError("nobody called")

    async def serve() -> None:
        await gateway._by_hand(  # pyright: ignore[reportPrivateUsage]
            Responder(policy=ScriptedPolicy(["north"]), renderer=ByteChatRenderer()),
            names=["policy"],
            run_id="run",
            store=store,
            limits=EpisodeLimits(horizon=8, max_prompt_tokens=4_096),
            place=gateway.Place(host="127.0.0.1", port=0, max_steps=8, max_calls=8),
            said=gateway._Said(read),  # pyright: ignore[reportPrivateUsage]
            cancelled=watch(),
        )

    with pytest.raises(StoreError, match="the store is gone"):
        asyncio.run(serve())


def test_a_gateway_that_is_cancelled_from_another_terminal_is_stored_as_cancelled(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_run, "BEAT_SECONDS", 0.05)
    store = str(tmp_path / "by_hand.db")
    is_open = asyncio.Event()

    def opened(said: object, number: int, environ: dict[str, str]) -> None:
        is_open.set()

    monkeypatch.setattr(gateway._Said, "opened", opened)  # pyright: ignore[reportPrivateUsage]

    async def serve() -> ExitCode:
        serving = asyncio.create_task(
            gateway._serve_hosted(  # pyright: ignore[reportPrivateUsage]
                Endpoint(url=hosted.openai, model="auto", key=hosted.key),
                place=gateway.Place(host="127.0.0.1", port=0, max_steps=8, max_calls=8),
                store=store,
            )
        )
        await asyncio.wait_for(is_open.wait(), 60)
        await asyncio.to_thread(ask_to_stop, store, "last")
        return await serving

    assert asyncio.run(serve()) is ExitCode.CANCELLED
    with Session(read_only_engine(store)) as session:
        (run,) = list_runs(session)
    assert run.status == "cancelled"


RUN = """
num_training_steps = 1
tasks_per_training_step = 1

[environment]
id = "longhaul/NumberLine-v0"

[rollout]
max_reply_tokens = 6
max_prompt_tokens = 300

[engine]
memory_gib = 0.25

[resources]
device = "cpu"
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_agent_is_tried_by_hand_on_weights_of_ours(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    standing = Standing("--checkpoint", "tiny", "--config", "run.toml", folder=tmp_path)
    try:
        environ = standing.environ()
        with openai.OpenAI(
            base_url=environ["OPENAI_BASE_URL"], api_key=environ["OPENAI_API_KEY"], max_retries=0
        ) as client:
            named = [model.id for model in client.models.list()]
            replies = [
                client.chat.completions.create(
                    model=name,
                    messages=[{"role": "user", "content": "Which way?"}],
                    temperature=0.0,
                    stream=True,
                )
                for name in ("auto", "tiny")
            ]
            read = [
                "".join(part.choices[0].delta.content or "" for part in reply if part.choices)
                for reply in replies
            ]
        body = {"reward": 1.0, "done": True}
        post(f"{environ['LONGHAUL_URL']}/step", key=environ["LONGHAUL_KEY"], body=body)
        ended = standing.lines_until("episode 0:")[-1]
        ask(standing.environ())  # the second episode is open when the gateway is ended
        terminate_all(standing.process)
        rest, _ = standing.process.communicate(timeout=120)
    finally:
        standing.process.kill()
        standing.process.wait()

    assert standing.process.returncode == 0, rest
    assert named == ["auto", "tiny"]
    assert read[0] == read[1] != ""
    assert "2 steps, return 1" in ended
    with Session(read_only_engine(tmp_path / "by_hand.db")) as session:
        (run,) = list_runs(session)
    assert (run.kind, run.name, run.status) == ("evaluate", "gateway", "finished")
    assert (run.num_episodes, run.num_failed_episodes) == (1, 1)
    with read_only_engine(tmp_path / "by_hand.db").connect() as connection:
        calls = connection.exec_driver_sql(
            "SELECT reply, num_action_tokens FROM call_detail ORDER BY episode_id, step_index"
        ).all()
        (num_pieces,) = connection.exec_driver_sql("SELECT count(*) FROM token_pieces").one()
    assert [reply for reply, _ in calls][:2] == read
    assert len(calls) == 3
    assert all(num_tokens == 6 for _, num_tokens in calls)
    assert num_pieces > 0


class _Served(Exception):
    """Stands in for the minutes in which the weights would be loaded."""


def described_for(*given: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """What would be served."""
    found: list[RunConfig] = []

    def served(config: RunConfig, *_: object, **__: object) -> None:
        found.append(config)
        raise _Served

    monkeypatch.setattr(gateway, "_serve_weights", served)
    answer = CliRunner().invoke(app, ["gateway", "--checkpoint", *given, "--port", "0"])
    assert isinstance(answer.exception, _Served), answer.output
    return found[0]


def test_a_model_that_no_run_describes_reads_and_writes_as_much_as_agents_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = described_for("smollm2", monkeypatch=monkeypatch).rollout
    small = described_for("tiny", monkeypatch=monkeypatch).rollout
    asked = described_for("smollm2", "rollout.max_reply_tokens=7", monkeypatch=monkeypatch).rollout
    run = described_for("smollm2", "--config", "default", monkeypatch=monkeypatch).rollout

    assert (large.max_prompt_tokens, large.max_reply_tokens) == (7168, 1024)
    assert (small.max_prompt_tokens, small.max_reply_tokens) == (3072, 1024)
    assert (asked.max_prompt_tokens, asked.max_reply_tokens) == (7168, 7)
    assert run == load_default_config().rollout


def test_calls_that_no_learner_reads_may_be_longer_than_its_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = load_default_config()
    longer = ("rollout.max_prompt_tokens=5000", "--config", "default")
    served = described_for("smollm2", *longer, monkeypatch=monkeypatch)

    assert run.optimizer.micro_batch_tokens < 5000
    assert served.optimizer.micro_batch_tokens == 5000 + run.rollout.max_reply_tokens


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "or weights as --checkpoint"),
        (
            ["--checkpoint", "tiny", "--endpoint", "http://127.0.0.1:1"],
            "--endpoint is for a hosted",
        ),
        (["--endpoint", "http://127.0.0.1:1", "--model", "m", "seed=1"], "seed=1 is for weights"),
        (["--checkpoint", "tiny", "--weights", "best"], "--weights chooses among a run's weights"),
        (["--checkpoint", "nowhere"], "nowhere"),
    ],
)
def test_a_gateway_serves_one_model_that_is_there(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    answer = CliRunner().invoke(app, ["gateway", *given])

    assert isinstance(answer.exception, ConfigError), answer.output
    assert said in str(answer.exception)


@pytest.mark.parametrize(
    "given",
    [["--checkpoint", "tiny"], ["--endpoint", "http://127.0.0.1:1/v1", "--model", "m"]],
)
def test_an_address_that_is_taken_is_refused_before_a_model_is_loaded_or_asked(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(app, ["gateway", *given, "--port", str(port)])

    assert isinstance(answer.exception, MachineError), answer.output
    assert f"cannot listen on 127.0.0.1:{port}" in str(answer.exception)
    assert list(tmp_path.iterdir()) == []
