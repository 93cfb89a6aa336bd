"""Tests for `trainer gateway`: a hosted model behind the gateway alone, played by hand."""

import asyncio
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

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
from longhaul_trainer.cli import gateway
from longhaul_trainer.cli.exit_codes import ExitCode
from longhaul_trainer.cli.main import app
from longhaul_trainer.cli.stored_runs import ask_to_stop
from longhaul_trainer.config import RunConfig, load_default_config
from longhaul_trainer.gateway.hosted import Endpoint
from longhaul_trainer.run import stored_run
from standing import Standing, ask, post


@pytest.fixture(scope="module")
def hosted() -> Iterator[Hosted]:
    with hosted_by_gateway(ScriptedPolicy(["north"])) as one:
        yield one


WAITS_SHORTLY = "from longhaul_core.store import session; session.LOCK_WAIT_SECONDS = 0.1"
"""For a store that is held; the program tries again all the same."""


@pytest.mark.slow
def test_an_agent_is_tried_by_hand_and_its_episodes_are_stored(
    hosted: Hosted, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    standing = Standing.before(hosted, tmp_path, python=quick_python)
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
        rest = standing.ended_by(signal.SIGINT)
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
def test_a_second_ctrl_c_ends_a_gateway_whose_store_is_held(
    hosted: Hosted, quick_python: str, tmp_path: Path
) -> None:
    standing = Standing.before(hosted, tmp_path, python=quick_python, first=WAITS_SHORTLY)
    try:
        assert ask(standing.environ()) == "north"
        with closing(sqlite3.connect(tmp_path / "by_hand.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            standing.send(signal.SIGINT)
            standing.lines_until("another Ctrl-C")
            with pytest.raises(subprocess.TimeoutExpired):  # it waits for the store
                standing.process.wait(1)
            standing.send(signal.SIGINT)
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
