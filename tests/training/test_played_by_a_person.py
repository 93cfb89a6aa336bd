"""What a person's episode leaves in the store is what a run's loop leaves for the same replies."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from longhaul_core.policy import HostedReply, NoTokens, ReadReply
from longhaul_core.rollout import EpisodeOutcome, EpisodeSpec, Responder
from longhaul_core.store import queries
from longhaul_core.store.queries import EpisodeDetail, EpisodeFilter, StepDetail
from longhaul_core.store.records import EpisodeRecord, RunStarted
from longhaul_core.store.session import read_only_engine
from longhaul_core.store.writer import StoreWriter
from longhaul_core.types import Message, Sampling, Split, Task, Tool
from longhaul_trainer.config.agent_loops import AgentLoop
from longhaul_trainer.config.load import parse_config
from longhaul_trainer.play.environments import descriptions_of
from longhaul_trainer.play.players import EnvironmentPlayer, limits_of
from longhaul_viewer.data import play as play_data
from longhaul_viewer.play.table import Choice, PlayTable

ENVIRONMENT = "longhaul/TextCraft-v0"
ACTIONS = ("inventory", "get 1 oak log", "fly", "craft 4 oak planks using 1 oak log", "inventory")
RUN = f"""
num_training_steps = 1
tasks_per_training_step = 1
[environment]
id = "{ENVIRONMENT}"
[rollout]
horizon = 5
"""


class Scripted:
    """Replies as it is told to. A `HostedPolicy`."""

    def __init__(self) -> None:
        self._left = list(ACTIONS)

    async def reply(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[Tool] = ()
    ) -> HostedReply:
        text = f"<action>{self._left.pop(0)}</action>"
        return HostedReply(read=ReadReply(text=text), model="person")


def by_a_run(task: Task) -> EpisodeOutcome:
    """The episode as a run with default settings plays it, in a worker process."""
    run = parse_config(RUN, (), source="test")
    (entry,) = run.played_environments

    async def play() -> EpisodeOutcome:
        player = EnvironmentPlayer(
            run,
            responders={"": Responder(policy=Scripted(), renderer=NoTokens())},
            descriptions=descriptions_of(run),
            agent_loop=AgentLoop(),
        )
        try:
            return await player.play(
                EpisodeSpec(task=task, seed=0),
                phase="test",
                training_step=0,
                limits=limits_of(run, entry, horizon=5),
                with_final_prompt=False,
                stop=asyncio.Event(),
            )
        finally:
            await player.close()

    return asyncio.run(play())


def stored(url: str) -> EpisodeDetail:
    engine = read_only_engine(url)
    with Session(engine) as session:
        (row,) = queries.list_episodes(session, where=EpisodeFilter()).rows
        found = queries.get_episode(session, episode_id=row.episode_id)
    engine.dispose()
    return found


def without_times(step: StepDetail) -> StepDetail:
    calls = tuple(replace(call, generate_seconds=0.0) for call in step.calls)
    return replace(step, environment_seconds=0.0, calls=calls)


def test_the_rows_are_those_of_a_run(tmp_path: Path) -> None:
    choice = Choice(environment_id=ENVIRONMENT)
    task = play_data.tasks(choice, Split.TEST)[0]
    mine, theirs = str(tmp_path / "mine.db"), str(tmp_path / "theirs.db")
    with StoreWriter(theirs) as writer:
        started = RunStarted(
            run_id="run",
            name="run",
            kind="evaluate",
            attempt=0,
            config_json="{}",
            provenance_json="{}",
            started_at=0.0,
        )
        record = EpisodeRecord(
            run_id="run",
            attempt=0,
            phase="test",
            training_step=0,
            group_index=0,
            retry=0,
            outcome=by_a_run(task),
            group_size=1,
        )
        writer.write([started, record])
    StoreWriter(mine).close()
    table = PlayTable(mine, account="ada")
    try:
        sitting = table.begin(choice, task, horizon=5)
        for step, action in enumerate(ACTIONS):
            table.state(sitting, wait_seconds=60)
            assert table.act(sitting, episode=0, step=step, action=action)
        assert table.state(sitting, wait_seconds=60).stage == "over"
    finally:
        table.close()

    person, run = stored(mine), stored(theirs)
    assert len(person.steps) == len(ACTIONS)
    assert [without_times(step) for step in person.steps] == [
        without_times(step) for step in run.steps
    ]
    assert person.final_observation == run.final_observation
    of_their_own = {"episode_id": "", "run_id": "", "phase": "", "started_at": 0.0}
    of_their_own |= {"duration_seconds": 0.0}
    assert replace(person.summary, **of_their_own) == replace(run.summary, **of_their_own)
