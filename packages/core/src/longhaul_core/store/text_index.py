"""The index of what episodes say: which text a step has, and how it gets in and out.

The text of a step is its observation, the replies of its calls, and what their prompts say that
stands nowhere else in the episode: what the store keeps once is indexed once, at the first step
that shows it. The writer does not index, which would cost it a third of its speed: `index_text`
follows it, a few thousand steps in a transaction, and notes how far it is.

The one decision to know: the index has no text of its own (`search_terms` has cut it, and SQL
finds the rest in the tables), so that what is removed from it must be read before.
"""

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Select, func, select, text, update

from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.message_text import message_numbers
from longhaul_core.store.models import (
    CallRow,
    EpisodeRow,
    MessageRow,
    ObservationRow,
    SearchProgressRow,
)
from longhaul_core.store.search_terms import search_terms
from longhaul_core.store.session import write_transaction
from longhaul_core.store.writer import GARBAGE_LOCK
from longhaul_core.store.writing.statements import insert

__all__ = [
    "SearchField",
    "StepText",
    "forget_removed",
    "forget_text",
    "index_text",
    "run_term",
    "step_texts",
]

SearchField = Literal["observation", "reply", "prompt"]

_STEPS_PER_BATCH = 2_000
"""A transaction of so many takes a tenth of a second: a writer waits for no more."""
_EPISODES_AT_ONCE = 500
_TURN_SECONDS = 0.12
"""Between two transactions on SQLite: longer than a writer waits between two looks at a lock."""
# A tsvector has a megabyte at most, and takes up to 3.4 bytes a byte of text (a list of short
# URLs); 65,536 characters are 256 KiB at most.
_MOST_BYTES, _MOST_CHARACTERS, _LONGEST_TERM = 262_144, 65_536, 2_046


@dataclass(frozen=True, slots=True)
class StepText:
    """What one step says."""

    observation_id: int
    run_id: str
    observation: str
    reply: str
    """Of its calls, and the tools that they ask for, one below the other."""
    prompt: str
    """What its prompts say that no earlier text of the episode does."""

    def fields(self) -> dict[SearchField, str]:
        """By the names that a search may be restricted to."""
        return {"observation": self.observation, "reply": self.reply, "prompt": self.prompt}


def run_term(run_id: str) -> str:
    """The term that all steps of a run have, and no text."""
    return "run" + hashlib.blake2b(run_id.encode(), digest_size=8).hexdigest()


def index_text(engine: Engine, *, most_steps: int | None = None) -> int:
    """Make what was written since the last time findable by `queries.search_steps`.

    Oldest first, in short transactions, so that a run may go on writing; two programs may do it at
    once. PostgreSQL's index has limits that SQLite's has not: of a step whose text is longer than
    256 KiB it holds the first 65,536 characters, the replies' first, and no word of 2 KiB or more.

    Args:
        engine: Of a store.
        most_steps: Stop after about so many; None means all that there are.

    Returns:
        The number of steps added.

    Raises:
        StoreError: The store refused.
    """
    newest = _newest_committed(engine)
    num_added = 0
    while most_steps is None or num_added < most_steps:
        begin = _indexed_up_to(engine)
        if begin >= newest:
            return num_added
        num_added += _index_some(engine, begin, newest)
        newest = min(newest, _newest(engine))  # others may have removed some
    return num_added


def forget_text(connection: Connection, episode_ids: Collection[str]) -> None:
    """Remove episodes from the text index, before their text is removed.

    PostgreSQL removes index entries with their rows.
    """
    if connection.dialect.name != "sqlite" or not episode_ids:
        return
    indexed = connection.execute(
        select(ObservationRow.id).where(
            ObservationRow.episode_id.in_(episode_ids),
            ObservationRow.id <= select(SearchProgressRow.indexed_up_to).scalar_subquery(),
        )
    ).scalars()
    gone = [_document(each) for each in step_texts(connection, ids=indexed.all())]
    if gone:
        connection.execute(
            text(
                "INSERT INTO step_search (step_search, rowid, run, observation, reply, prompt)"
                " VALUES ('delete', :id, :run, :observation, :reply, :prompt)"
            ),
            gone,
        )


def forget_removed(connection: Connection) -> None:
    """Let what comes next be indexed: SQLite gives the numbers of the newest rows once more."""
    newest = select(func.coalesce(func.max(ObservationRow.id), 0)).scalar_subquery()
    connection.execute(
        update(SearchProgressRow)
        .where(SearchProgressRow.indexed_up_to > newest)
        .values(indexed_up_to=newest)
    )


def step_texts(
    connection: Connection, *, ids: Sequence[int], prompts: bool = True
) -> list[StepText]:
    """What steps say, in no order.

    Args:
        connection: Only read from.
        ids: Of their observations; one that is not there is left out.
        prompts: Whether `prompt` is asked for; else it is empty.
    """
    found: list[StepText] = []
    for start in range(0, len(ids), _EPISODES_AT_ONCE):
        some = ids[start : start + _EPISODES_AT_ONCE]
        steps = connection.execute(
            select(
                ObservationRow.id,
                ObservationRow.episode_id,
                ObservationRow.step_index,
                ObservationRow.text,
                EpisodeRow.run_id,
            )
            .join(EpisodeRow, EpisodeRow.id == ObservationRow.episode_id)
            .where(ObservationRow.id.in_(some))
        ).all()
        said = _said(connection, {(row.episode_id, row.step_index) for row in steps}, prompts)
        for row in steps:
            reply, prompt = said.get((row.episode_id, row.step_index), ("", ""))
            found.append(StepText(row.id, row.run_id, row.text, reply, prompt))
    return found


_Steps = Collection[tuple[str, int]]


def _said(
    connection: Connection, steps: _Steps, prompts: bool
) -> dict[tuple[str, int], tuple[str, str]]:
    """Replies and prompts of steps, by episode and step."""
    episode_ids = sorted({episode_id for episode_id, _ in steps})
    own = _own_texts(connection, episode_ids) if prompts else {}
    replies: dict[tuple[str, int], list[str]] = {}
    shown: dict[tuple[str, int], list[str]] = {}
    seen: set[tuple[str, int]] = set()
    for call in connection.execute(
        select(
            CallRow.episode_id,
            CallRow.step_index,
            CallRow.reply,
            CallRow.tool_calls_json,
            CallRow.messages_json,
        )
        .where(CallRow.episode_id.in_(episode_ids))
        .order_by(CallRow.episode_id, CallRow.step_index, CallRow.call_index)
    ):
        step = (call.episode_id, call.step_index)
        replies.setdefault(step, []).extend(filter(None, (call.reply, call.tool_calls_json)))
        if prompts:
            for number in message_numbers(call.messages_json):
                message = (call.episode_id, number)
                if message not in seen:
                    seen.add(message)
                    shown.setdefault(step, []).append(own.get(message, ""))
    return {
        step: ("\n".join(replies.get(step, ())), "\n".join(filter(None, shown.get(step, ()))))
        for step in steps
    }


def _own_texts(connection: Connection, episode_ids: Sequence[str]) -> dict[tuple[str, int], str]:
    """What messages say that no text before them does, by episode and number."""
    own: dict[tuple[str, int], str] = {}
    for row in connection.execute(
        select(
            MessageRow.episode_id,
            MessageRow.number,
            MessageRow.own_lines,
            MessageRow.pieces_json,
            MessageRow.above,
            MessageRow.below,
            MessageRow.tool_calls_json,
            MessageRow.reasoning,
        ).where(MessageRow.episode_id.in_(episode_ids))
    ):
        pieces: list[Any] = json.loads(row.pieces_json or "[]")
        parts = (
            row.above,
            row.own_lines,
            *(piece for piece in pieces if isinstance(piece, str)),
            row.below,
            row.tool_calls_json,
            row.reasoning,
        )
        own[row.episode_id, row.number] = "\n".join(filter(None, parts))
    return own


def _document(step: StepText) -> dict[str, object]:
    """Parameters of a row of the index."""
    return {
        "id": step.observation_id,
        "run": run_term(step.run_id),
        **{field: search_terms(said) for field, said in step.fields().items()},
    }


_ADD_SQLITE = """
INSERT INTO step_search (rowid, run, observation, reply, prompt)
VALUES (:id, :run, :observation, :reply, :prompt)
"""
_ADD_POSTGRESQL = """
INSERT INTO step_search (id, document) VALUES (
    :id, setweight(to_tsvector('simple', :reply), 'B') || CAST(:gap AS tsvector)
    || setweight(to_tsvector('simple', :observation), 'A') || CAST(:gap AS tsvector)
    || setweight(to_tsvector('simple', :prompt), 'C')
)
"""
"""The run's term stands between the texts, so that no phrase goes from one into another."""


def _shortened(document: dict[str, object]) -> dict[str, object]:
    """What PostgreSQL can hold of it."""
    fields = ("reply", "observation", "prompt")
    texts = {field: str(document[field]) for field in fields}
    for field, terms in texts.items():
        if len(terms) > _LONGEST_TERM // 4:
            texts[field] = " ".join(
                term for term in terms.split() if len(term.encode()) <= _LONGEST_TERM
            )
    if sum(len(terms.encode()) for terms in texts.values()) >= _MOST_BYTES:
        room = _MOST_CHARACTERS
        for field in fields:
            texts[field] = texts[field][:room]
            room -= len(texts[field])
    return document | texts | {"gap": f"{document['run']}:2"}


def _newest_committed(engine: Engine) -> int:
    """The largest id of an observation, below which none is written any more."""
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            # Writers hold it while they write: ids are given out before they are committed.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": GARBAGE_LOCK})
        return connection.scalar(select(func.coalesce(func.max(ObservationRow.id), 0))) or 0


def _newest(engine: Engine) -> int:
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        return connection.scalar(select(func.max(ObservationRow.id))) or 0


def _indexed_up_to(engine: Engine) -> int:
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        return connection.scalar(select(SearchProgressRow.indexed_up_to)) or 0


def _index_some(engine: Engine, begin: int, newest: int) -> int:
    """Index the next steps after `begin`; none where another program has done so meanwhile."""
    places = select(ObservationRow.id, ObservationRow.episode_id, ObservationRow.step_index).where(
        ObservationRow.id > begin
    )
    with store_errors(describe_store(engine.url)), engine.connect() as connection:
        read = _by_id(
            connection,
            places.where(ObservationRow.id <= newest)
            .order_by(ObservationRow.id)
            .limit(_STEPS_PER_BATCH),
        )
        said = step_texts(connection, ids=list(read))
        documents = {each.observation_id: _document(each) for each in said}
    end = max(read) if len(read) == _STEPS_PER_BATCH else newest
    sqlite = engine.dialect.name == "sqlite"
    with write_transaction(engine) as connection:
        # Some of them may have been removed since they were read; in SQLite, where the newest were,
        # others may have their numbers, or get them later.
        up_to_end = places.where(ObservationRow.id <= end).with_for_update(key_share=True)
        still = _by_id(connection, up_to_end)
        last = connection.scalar(select(func.max(ObservationRow.id))) or 0
        end = min(end, last, *(each - 1 for each in still if still[each] != read.get(each)))
        connection.execute(
            insert(connection, SearchProgressRow).on_conflict_do_nothing(),
            {"id": 1, "indexed_up_to": 0, "indexed_at": time.time()},
        )
        taken = connection.execute(
            update(SearchProgressRow)
            .where(SearchProgressRow.indexed_up_to == begin)
            .values(indexed_up_to=end, indexed_at=time.time())
        )
        if taken.rowcount == 0:
            return 0
        new = [documents[each] for each in still if each <= end]
        if new and sqlite:
            connection.execute(text(_ADD_SQLITE), new)
        elif new:
            connection.execute(text(_ADD_POSTGRESQL), [_shortened(each) for each in new])
    if sqlite:
        time.sleep(_TURN_SECONDS)
    return len(new)


def _by_id(connection: Connection, places: Select[int, str, int]) -> dict[int, tuple[str, int]]:
    """Episode and step of observations."""
    return {
        number: (episode_id, step_index)
        for number, episode_id, step_index in connection.execute(places)
    }
