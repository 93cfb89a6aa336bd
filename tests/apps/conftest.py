"""One real store on disk for all tests of the API and the viewer; they only read it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from sqlalchemy.orm import Session

from apps.sample_store import write_sample_store
from longhaul_core.store import StoreWriter, TokenPieces, queries
from longhaul_core.store.queries import EpisodeDetail, EpisodeFilter
from longhaul_core.store.session import read_only_engine
from longhaul_core.types import Message, ToolCall
from store_samples import (
    make_credit,
    make_decisions,
    make_loss_input,
    make_program,
    make_record,
    make_task,
    run_started,
)


@dataclass(frozen=True, kw_only=True)
class SampleStore:
    """Where the store is, and what is worth looking at in it."""

    url: str
    run_id: str
    solved: EpisodeDetail
    """A trained episode that solved its task."""
    hostile: EpisodeDetail
    """One whose replies hold markup and three scripts."""
    failed: EpisodeDetail


@dataclass(frozen=True, kw_only=True)
class ProgramStore:
    """A store with one trained episode of a program: several calls a step, pictures, tools."""

    url: str
    episode_id: str
    pictures: dict[str, bytes]
    """By hash: of the first observation, of a tool's result, of the final observation."""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> ProgramStore:
    url = str(tmp_path_factory.mktemp("program") / "program.db")
    with ThreadPoolExecutor(1) as player:
        return player.submit(write_program_store, url).result()


def write_program_store(url: str, *, run_id: str = "run") -> ProgramStore:
    """One run of one group of two episodes; the replies hold markup."""
    made = make_program(task=replace(make_task(), data='{"maze": 7}'))
    first, *others = made.steps
    plan, *calls = first.calls
    hostile = replace(
        plan,
        reply=HOSTILE,
        tool_calls=(ToolCall(id=HOSTILE, name=HOSTILE, arguments=HOSTILE),),
        messages=(Message(role="user", content=(HOSTILE, *first.observation.pictures)),),
    )
    steps = (replace(first, calls=(hostile, *calls)), *others)
    records = [
        make_record(replace(made, steps=steps), run_id=run_id),
        make_record(make_program(task=made.task, sample_index=1), run_id=run_id),
    ]
    with StoreWriter(url) as writer:
        writer.write(
            [
                run_started(run_id),
                *records,
                *make_decisions(records),
                *(make_credit(record) for record in records),
                *(make_loss_input(record) for record in records),
                TokenPieces(run_id=run_id, pieces={n: f" word{n}".encode() for n in range(10)}),
            ]
        )
    shown = [
        *first.observation.pictures,
        *(p for step in steps for call in step.calls for m in call.messages for p in m.pictures),
        *made.final_observation.pictures,
    ]
    return ProgramStore(
        url=url,
        episode_id=records[0].episode_id,
        pictures={picture.content_hash: picture.data or b"" for picture in shown},
    )


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleStore:
    url = str(tmp_path_factory.mktemp("store") / "sample.db")
    # In a thread of its own: a browser's driver may hold this one's event loop.
    with ThreadPoolExecutor(1) as player:
        run_id = player.submit(write_sample_store, url).result().run_id
    engine = read_only_engine(url)
    with Session(engine) as session:

        def first(where: EpisodeFilter, text: str = "") -> EpisodeDetail:
            rows = queries.list_episodes(session, where=where, limit=1000).rows
            details = (queries.get_episode(session, episode_id=row.episode_id) for row in rows)
            return next(
                detail
                for detail in details
                if any(text in (call.reply or "") for step in detail.steps for call in step.calls)
            )

        sample = SampleStore(
            url=url,
            run_id=run_id,
            solved=first(EpisodeFilter(run_id=run_id, phase="train", success=True)),
            hostile=first(EpisodeFilter(run_id=run_id, phase="train"), "<script>"),
            failed=first(EpisodeFilter(run_id=run_id, failed=True)),
        )
    engine.dispose()
    return sample
