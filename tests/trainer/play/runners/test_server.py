"""A run whose agent is `remote`: its settings, and its leases in the store."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from fakes import make_task
from gateways import responder_of
from longhaul_core.errors import ConfigError
from longhaul_core.rollout import EpisodeOutcome, EpisodeSpec
from longhaul_core.store import LeaseRecord, StoreWriter, read_only_engine
from longhaul_core.types import Trajectory
from longhaul_trainer.config import RunConfig
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.play.programs.command import CommandProgram
from longhaul_trainer.play.programs.player import ProgramPlayer
from longhaul_trainer.play.runners.lease_log import LeaseLog
from longhaul_trainer.play.runners.leases import Lease, Leases
from longhaul_trainer.play.runners.runner import Runner
from longhaul_trainer.play.runners.server import Runners
from longhaul_trainer.play.runners.token import token_of
from program_house import COMMAND, LIMITS
from runner_house import TOKEN, until
from store_samples import run_started
from trainer.play.runners.test_leases import offer_of


def run_of(**agent: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "num_training_steps": 1,
            "tasks_per_training_step": 1,
            "tasks": {"source": "tasks.jsonl"},
            "agent": {"kind": "remote", **agent},
        }
    )


def test_an_address_that_other_machines_reach_needs_a_token() -> None:
    assert token_of(run_of(), {}) == ""
    assert token_of(run_of(host="0.0.0.0"), {"LONGHAUL_RUNNER_TOKEN": TOKEN}) == TOKEN
    with pytest.raises(ConfigError, match=r"agent.host = '0.0.0.0' can be reached"):
        token_of(run_of(host="0.0.0.0"), {})
    with pytest.raises(ConfigError, match=r"16 ASCII characters or more and no space, has 5"):
        token_of(run_of(), {"LONGHAUL_RUNNER_TOKEN": "short"})


def test_each_kind_of_agent_has_settings_of_its_own() -> None:
    with pytest.raises(ValidationError, match=r"agent.command = .* means nothing"):
        run_of(command=["true"])
    with pytest.raises(ValidationError, match=r"agent.port = 9000 means nothing"):
        run_of(kind="command", command=["true"], port=9000)


def test_the_store_says_which_runner_plays_what(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    writer = StoreWriter(store)
    writer.write([run_started()])

    async def commit(records: Sequence[LeaseRecord]) -> None:
        writer.write([*records])

    async def play() -> EpisodeOutcome:
        run = run_of(port=0)
        runners = Runners(
            run,
            run_id="run",
            attempt=0,
            commit=commit,
            folder=tmp_path,
            agent_loop=AgentLoop(),
        )
        player = ProgramPlayer(run, responder=responder_of(), runners=runners)
        playing = asyncio.create_task(
            player.play(
                EpisodeSpec(
                    task=replace(make_task(3), data='{"fault": "play", "argument": 2}'),
                    seed=1,
                    group_index=4,
                    sample_index=2,
                    retry=1,
                ),
                phase="train",
                training_step=7,
                limits=LIMITS,
                with_final_prompt=False,
                stop=asyncio.Event(),
            )
        )
        await until("it listens", (tmp_path / "gateways/0.json").is_file)
        stop = asyncio.Event()
        runner = Runner(
            [runners.gateway.address],
            program_of=lambda seconds: CommandProgram(COMMAND, deadline_seconds=seconds),
            name="here",
        )
        leasing = asyncio.create_task(runner.run(stop=stop, at_once=asyncio.Event()))
        outcome = await playing
        stop.set()
        await leasing
        await player.close()
        return outcome

    outcome = asyncio.run(play())
    writer.close()

    assert isinstance(outcome, Trajectory), outcome
    engine = read_only_engine(store)
    with engine.connect() as connection:
        (row,) = connection.execute(
            text("SELECT runner, state, episode_id, task_id, ended FROM lease_summary")
        ).all()
    engine.dispose()
    assert row.runner == "here"
    assert row.state == "returned"
    assert row.episode_id == "run/0/train/7/4/2/1"
    assert row.task_id == make_task(3).task_id
    assert row.ended is not None


def test_a_lease_whose_writing_is_cut_off_by_the_end_is_written_then() -> None:
    async def close_while_writing() -> list[Sequence[LeaseRecord]]:
        written: list[Sequence[LeaseRecord]] = []
        begun, never = asyncio.Event(), asyncio.Event()

        async def commit(records: Sequence[LeaseRecord]) -> None:
            if not begun.is_set():
                begun.set()
                await never.wait()
            written.append(records)

        log = LeaseLog(commit, run_id="run", attempt=0)
        leases = Leases(lost_seconds=60, on_change=log.note)
        log.start(leases)
        offer = offer_of("0")
        lease = Lease(id="lease", runner="r", address="http://127.0.0.1:1")
        log.note(offer, lease, None)
        await begun.wait()
        await log.close()
        return written

    (records,) = asyncio.run(close_while_writing())
    assert [record.lease_id for record in records] == ["lease"]


def test_a_defect_of_what_writes_leases_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        has_failed = asyncio.Event()

        async def commit(_records: Sequence[LeaseRecord]) -> None:
            has_failed.set()
            raise ValueError("a defect")

        log = LeaseLog(commit, run_id="run", attempt=0)
        log.start(Leases(lost_seconds=60, on_change=log.note))
        log.note(offer_of("0"), Lease(id="first", runner="r", address="http://h"), None)
        await has_failed.wait()
        await log.close()

    asyncio.run(play())
    assert "leases are no longer recorded" in caplog.text
    assert "ValueError: a defect" in caplog.text


def test_a_lease_that_has_ended_stays_as_it_is(tmp_path: Path) -> None:
    begun = LeaseRecord(
        run_id="run",
        attempt=0,
        lease_id="lease",
        episode_id="run/0/train/1/0/0/0",
        task_id="t",
        runner="r",
        leased_at=1.0,
        heard_at=1.0,
    )
    store = tmp_path / "store.db"

    def state() -> tuple[str, float]:
        engine = read_only_engine(store)
        with engine.connect() as connection:
            (row,) = connection.execute(
                text(
                    "SELECT s.state, l.heard_at FROM lease_summary s "
                    "JOIN leases l ON l.lease_id = s.lease_id"
                )
            ).all()
        engine.dispose()
        return row.state, row.heard_at

    with StoreWriter(store) as writer:
        writer.write([run_started(), begun])
        assert state() == ("playing", 1.0)
        writer.write([replace(begun, heard_at=2.0)])
        assert state() == ("playing", 2.0)
        writer.write([replace(begun, heard_at=3.0, ended_at=4.0, outcome="lost")])
        writer.write([begun, replace(begun, heard_at=9.0, ended_at=9.0, outcome="returned")])
        assert state() == ("lost", 3.0)
        writer.write([replace(begun, lease_id="open")])
        writer.write([run_started(attempt=1, resumes_after=1)])

    engine = read_only_engine(store)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT lease_id, state FROM lease_summary")).all()
    engine.dispose()
    assert sorted((row.lease_id, row.state) for row in found) == [
        ("lease", "lost"),
        ("open", "run_ended"),
    ]
