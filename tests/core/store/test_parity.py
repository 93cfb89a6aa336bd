"""SQLite and PostgreSQL hold the same after the same writes, and answer every question alike."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, cast, get_args

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

from core.sql_box.varied_store import RUNS, write_world
from core.store.conftest import new_database
from longhaul_core.audit import tables
from longhaul_core.errors import ComparisonError, ConfigError, StoreError
from longhaul_core.store import Label, StoreWriter, maintenance, open_store, queries
from longhaul_core.store.labelling import put_label
from longhaul_core.store.models import Base
from longhaul_core.store.queries import EpisodeFilter, EpisodeSort, GroupFilter, GroupId, replay
from longhaul_core.store.retention import Retention
from longhaul_core.types import StopReason
from store_samples import measured, one_of_each, run_started

EPISODE = "first/0/train/1/0/0/0"
PROGRAM = "run/0/validation/2/0/0/0"
LABEL = Label(
    episode_id=EPISODE, step_index=0, name="verdict", value="loops", author="me", created_at=5.0
)


def write(store: str) -> None:
    write_world(store)
    with StoreWriter(store) as writer:
        writer.write(one_of_each())
        for record in one_of_each():  # which changes nothing
            writer.write([record])
        writer.write(measured(EPISODE, choice=[(0.0, 1.0)] * 3, taken=[(0.0, 0.5)] * 2))


def resume(engine: Engine) -> None:
    with StoreWriter(engine.url) as writer:
        writer.write([run_started("second", attempt=2, resumes_after=1)])


def retain(engine: Engine) -> None:
    retention = Retention(engine, run_id="first", sampled_groups=1)
    while retention.remove_some(up_to=2):
        pass


def delete(engine: Engine) -> None:
    maintenance.delete_run(engine, run_id="run", force=True)
    maintenance.collect_garbage(engine)


CHANGES: dict[str, Callable[[Engine], object]] = {
    "written": lambda engine: None,
    "indexed": maintenance.index_text,
    "labelled": lambda engine: put_label(engine, LABEL),
    "resumed": resume,
    "removed what is not kept": retain,
    "dropped tokens": lambda engine: maintenance.drop_tokens(engine, run_id="second", force=True),
    "deleted a run": delete,
}
"""What happens to both stores, one after the other."""
ASKED_AFTER = ("indexed", "deleted a run")
"""When every question is asked: of all that there is, and of what is left."""

FILTERS = (
    EpisodeFilter(),
    EpisodeFilter(run_id="first", phase="train", failed=False),
    EpisodeFilter(failed=True),
    EpisodeFilter(success=False, min_training_step=1, max_training_step=2),
    EpisodeFilter(stop_reason=StopReason.HORIZON_REACHED),
    EpisodeFilter(min_return=0.5, max_return=2.0),
    EpisodeFilter(min_steps=3, max_steps=4),
    EpisodeFilter(failure_cause="environment_timeout"),
    EpisodeFilter(policy_version=7),
    EpisodeFilter(task_id="train/00001", environment="samples/Maze-v0"),
    EpisodeFilter(trained=True),
    EpisodeFilter(rolled_back=None),
    EpisodeFilter(rolled_back=True, group_index=1),
    EpisodeFilter(text="kitchen"),
)
MORE: dict[str, list[dict[str, Any]]] = {
    "list_episodes": [
        *({"where": where, "limit": 1000, "count_up_to": 10} for where in FILTERS),
        *(
            {"sort": sort, "descending": descending, "limit": 1000}
            for sort in get_args(EpisodeSort)
            for descending in (False, True)
        ),
    ],
    "sampled_truth": [{"episode_id": EPISODE}],
    "continued_steps": [{"episode_ids": [EPISODE, PROGRAM]}],
    "count_episodes": [{"where": where} for where in FILTERS],
    "list_groups": [
        {"run_id": run_id, "where": where, "limit": 1000, "descending": descending}
        for run_id in RUNS
        for descending in (False, True)
        for where in (
            None,
            GroupFilter(phase="train", has_signal=True),
            GroupFilter(has_signal=False),
            GroupFilter(outcomes="mixed"),
            GroupFilter(outcomes="solved", max_training_step=2),
        )
    ],
    "search_steps": [
        {"words": words, "run_id": run_id, "within": within, "limit": 1000}
        for words in ("kitchen", "less light", "leave", "go north")
        for run_id in (None, "first")
        for within in (None, ["reply"], ["observation"])
    ],
    "failures": [{"run_id": "first", "cause": "environment_timeout", "limit": 3}],
    "list_runs": [{"status": "finished"}, {"kind": "train", "limit": 2}, {"after": "second"}],
    "rows_of_episodes": [
        {"answer": answer, "table": table, "episode_ids": [EPISODE, PROGRAM]}
        for answer, table in (
            (tables.CallNumbers, "calls"),
            (tables.CallPrompt, "calls"),
            (tables.CallReply, "calls"),
            (tables.CallTokens, "call_tokens"),
            (tables.CriticLossInput, "critic_loss_inputs"),
            (tables.EpisodePicture, "episode_media"),
            (tables.FinalState, "episodes"),
            (tables.LossInput, "loss_inputs"),
            (tables.MessageParts, "messages"),
            (tables.State, "observations"),
        )
    ],
    "training_curve": [{"run_id": "first", "phase": "validation"}],
    "horizon_outcomes": [{"run_id": "first", "of_played": True}],
}
"""Arguments beyond those that a question must be given."""
DIFFER = {"run_sizes", "storage_stats", "search_progress", "changes_since"}
"""They tell bytes on disk, the time of day, and numbers that each database gives by itself."""


def questions() -> dict[str, Callable[..., object]]:
    """Every function that asks a store."""
    named = {name: getattr(where, name) for where in (queries, replay) for name in where.__all__}
    return {
        name: ask
        for name, ask in named.items()
        if inspect.isfunction(ask) and "session" in inspect.signature(ask).parameters
    }


def arguments(ask: Callable[..., object], values: Mapping[str, list[Any]]) -> Iterator[Any]:
    """What it must be given, in every combination; an unknown name is a KeyError."""
    needed = [
        name
        for name, parameter in inspect.signature(ask).parameters.items()
        if parameter.default is inspect.Parameter.empty and name != "session"
    ]
    for chosen in product(*(values[name] for name in needed)):
        yield dict(zip(needed, chosen, strict=True))


def answers(engine: Engine) -> dict[str, str]:
    """Every question with all that the store has to ask about, and its answer in words."""
    found: dict[str, str] = {}
    with Session(engine) as session:
        everything = queries.list_episodes(
            session, where=EpisodeFilter(rolled_back=None), limit=10_000
        ).rows
        runs = sorted({one.run_id for one in everything})
        groups = {
            GroupId(one.run_id, one.phase, one.training_step, one.group_index) for one in everything
        }
        # Every eleventh, and the program's with its pictures and tools.
        episode_ids = [*sorted(one.episode_id for one in everything)[::11], PROGRAM]
        values: dict[str, list[Any]] = {
            "run_id": [*runs, "nobody"],
            "run_ids": [runs],
            "answer": [tables.StepNumbers],
            "table": ["steps"],
            "training_step": [0, 1, 2, 3],
            "group": sorted(groups, key=str)[::3],
            "episode_id": episode_ids,
            "episode_ids": [episode_ids],
            "step_index": [0, 1],
            "call_index": [0],
            "first": [0],
            "stop": [3],
            "a": [queries.Checkpoint("first", 0)],
            "b": [queries.Checkpoint("second", 0), queries.Checkpoint("first", 3)],
            "content_hash": ["nothing"],
            "now": [1_760_000_500.0],
            "policy_version": [0, 7],
            "limit": [1000],
            "pieces": [[b"go"]],
            "letters": [[b"g", b"<"]],
            "names": [["kitchen"], ["a_%", "light"]],
            "in_replies": [["light"], []],
            "token_ids": [[7, 8, 9]],
            "where": list(FILTERS[:4]),
            "column": ["episode_return", "num_steps", "training_step"],
            "words": [],
            "name": [*runs, "sample", "nobody"],
            "task": [one.task for one in queries.ended_episodes(session, EpisodeFilter())][:1],
        }
        for name, ask in questions().items():
            if name in DIFFER:
                continue
            for given in [*arguments(ask, values), *MORE.get(name, [])]:
                try:
                    answer = in_order(ask(session, **given))
                except (LookupError, ComparisonError, ConfigError, StoreError) as error:
                    answer = error
                found[f"{name}{given}"] = rounded(repr(answer))
    return found


def in_order(answer: object) -> object:
    """All that an answer tells, less the time at which texts were indexed."""
    match answer:
        case queries.SearchPage():
            return answer.rows
        case dict():
            return sorted(cast("dict[Any, Any]", answer).items(), key=repr)
        case Iterator():
            return list(cast("Iterator[object]", answer))
        case _:
            return answer


def rounded(said: str) -> str:
    """Sums and means of floats depend on the order in which a database adds."""
    return re.sub(r"\d+\.\d+(e[-+]\d+)?", lambda number: f"{float(number[0]):.12g}", said)


def content(engine: Engine) -> dict[str, list[str]]:
    """Every row of every table, but for the time at which texts were indexed."""
    found: dict[str, list[str]] = {}
    with engine.connect() as connection:
        for name, table in Base.metadata.tables.items():
            if name == "search_progress":
                continue
            rows = connection.execute(select(table)).all()
            found[name] = sorted(rounded(repr(tuple(row))) for row in rows)
    return found


Snapshots = dict[str, tuple[dict[str, list[str]], dict[str, str]]]


def snapshots(store: str) -> Snapshots:
    """What the store holds after each change, and what it answers after some."""
    found: Snapshots = {}
    write(store)
    engine = open_store(store)
    for name, change in CHANGES.items():
        change(engine)
        found[name] = content(engine), answers(engine) if name in ASKED_AFTER else {}
    engine.dispose()
    return found


@pytest.fixture(scope="module")
def both(
    postgresql_server: URL, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Snapshots, Snapshots]:
    of_sqlite = snapshots(str(tmp_path_factory.mktemp("parity") / "store.db"))
    with new_database(postgresql_server) as address:
        return of_sqlite, snapshots(address)


@pytest.mark.parametrize("change", CHANGES)
def test_both_databases_hold_the_same(both: tuple[Snapshots, Snapshots], change: str) -> None:
    of_sqlite, of_postgresql = (each[change][0] for each in both)
    assert [name for name in of_sqlite if of_sqlite[name] != of_postgresql[name]] == []


@pytest.mark.parametrize("change", ASKED_AFTER)
def test_both_databases_answer_alike(both: tuple[Snapshots, Snapshots], change: str) -> None:
    of_sqlite, of_postgresql = (each[change][1] for each in both)
    assert of_sqlite.keys() == of_postgresql.keys()
    assert [asked for asked in of_sqlite if of_sqlite[asked] != of_postgresql[asked]] == []
