"""Full-text search over observations, replies and prompts; `text_index` fills the index."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NewType, Self, cast

from sqlalchemy import ColumnElement, bindparam, func, select, text
from sqlalchemy.orm import Session

from longhaul_core.store.models import EpisodeRow, ObservationRow, SearchProgressRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.keyset import decoded_key, encoded_key
from longhaul_core.store.search_terms import find_terms, query_phrases
from longhaul_core.store.text_index import SearchField, run_term, step_texts

__all__ = [
    "SearchHit",
    "SearchKey",
    "SearchPage",
    "SearchProgress",
    "episodes_with_text",
    "search_progress",
    "search_steps",
]

MATCH_OPENS, MATCH_CLOSES = "\ue000", "\ue001"
MOST_RANKED = 1_000
"""Hits that are ranked: the rank of each is computed from where its words stand."""
_MOST_LISTED = 5_000
"""Hits whose episodes are listed by hits; beyond, episodes are asked whether they have one."""
_SURELY_MORE = 4
"""Times that an estimate of hits is above a number, for the hits to be more without a count."""
_SNIPPET_BEFORE, _SNIPPET_AFTER = 60, 140
"""Characters of a snippet around its first match."""


@dataclass(frozen=True, slots=True)
class SearchHit(Answer):
    """A step whose text matches."""

    episode_id: str
    step_index: int
    run_id: str
    phase: str
    training_step: int
    environment: str
    task_id: str
    found_in: str
    """`observation`, `reply` or `prompt`: where the snippet is from."""
    snippet: str
    """Around the first match, matches between U+E000 and U+E001: mark them after escaping."""


SearchKey = NewType("SearchKey", str)
"""Where a page of hits ended, as text that may stand in an address."""


@dataclass(frozen=True, slots=True)
class SearchProgress(Answer):
    """How much of the store's text can be found."""

    num_waiting: int
    """Steps that are not indexed yet, at most."""
    indexed_at: float | None
    """When the index was last added to, Unix time; None before the first time."""


@dataclass(frozen=True, slots=True)
class SearchPage(Answer):
    """Part of the hits of a search."""

    rows: tuple[SearchHit, ...]
    next_key: SearchKey | None
    """Where the next page begins; None on the last one."""
    ranked: bool
    """Whether the best come first; else the newest do."""
    progress: SearchProgress


def search_steps(
    session: Session,
    *,
    words: str,
    run_id: str | None = None,
    within: Collection[SearchField] | None = None,
    best_first: bool = False,
    after: SearchKey | None = None,
    limit: int = 50,
) -> SearchPage:
    """Steps of the lineage whose text has all the words, those written last first.

    The text of a step is its observation, the replies of its calls, and what their prompts say that
    none of the episode's earlier text does. Only steps that `index_text` has indexed are found.

    Args:
        session: Only read from.
        words: Words in any order, and phrases between double quotes; neither case nor accents nor
            other signs matter. A word of a script without spaces is found within longer text.
        run_id: Only this run; None means all.
        within: Only where one of these has all the words; None means where the step has.
        best_first: Rank the hits by how often they have the words, where there are at most
            `MOST_RANKED`; beyond, the newest come first all the same.
        after: `next_key` of the page before; None begins.
        limit: Rows of a page.

    Raises:
        ConfigError: `after` is no key of such a list.
    """
    progress = search_progress(session)
    phrases = query_phrases(words)
    if not phrases:
        return SearchPage(rows=(), next_key=None, ranked=False, progress=progress)
    asked = _Asked.of(session, phrases, run_id=run_id, within=within)
    order, place = (None, 0) if after is None else decoded_key(after, str, int)
    ranked = best_first and (
        len(asked.newest(limit=MOST_RANKED + 1)) <= MOST_RANKED
        if order is None
        else order == "best"
    )
    if ranked:  # its place is how many came before
        ids = asked.best(limit=limit + 1, leave_out=place)
        next_key = encoded_key("best", place + limit)
    else:
        ids = asked.newest(limit=limit + 1, before=None if order is None else place)
        next_key = encoded_key("newest", *ids[limit - 1 : limit])
    return SearchPage(
        rows=_hits(session, ids[:limit], phrases),
        next_key=SearchKey(next_key) if len(ids) > limit else None,
        ranked=ranked,
        progress=progress,
    )


def search_progress(session: Session) -> SearchProgress:
    """How far the index is behind; fast."""
    newest = session.scalar(select(func.max(ObservationRow.id))) or 0
    oldest = session.scalar(select(func.min(ObservationRow.id))) or 0
    progress = session.execute(
        select(SearchProgressRow.indexed_up_to, SearchProgressRow.indexed_at)
    ).one_or_none()
    if progress is None:
        return SearchProgress(num_waiting=newest - oldest + 1 if newest else 0, indexed_at=None)
    return SearchProgress(
        num_waiting=max(0, newest - progress.indexed_up_to), indexed_at=progress.indexed_at
    )


def episodes_with_text(
    session: Session, words: str, *, run_id: str | None = None
) -> ColumnElement[bool]:
    """The condition on `episodes` that a step has all the words.

    Args:
        session: Only read from: how many hits there are decides how it is asked.
        words: As in `search_steps`; without any, no episode matches.
        run_id: Of the episodes, where that is known.
    """
    phrases = query_phrases(words)
    if not phrases:
        return EpisodeRow.id.is_(None)
    # To find the run's term beside the words costs more than to leave out what is of other runs.
    asked = _Asked.of(session, phrases, run_id=None, within=None)
    few = asked.has_at_most(_MOST_LISTED)
    if not few and run_id is not None:
        asked = _Asked.of(session, phrases, run_id=run_id, within=None)
        few = asked.has_at_most(_MOST_LISTED)
    match, given = asked.match, {"query": asked.given["query"]}
    if few:
        hits = (
            "SELECT o.episode_id FROM step_search s"
            f" JOIN observations o ON o.id = s.{asked.key} WHERE {match}"
        )
        # From IN, PostgreSQL makes a join, and may look for each step of the list in the index.
        listed = f"IN ({hits})" if asked.key == "rowid" else f"= ANY(ARRAY({hits}))"
        of_hits = text(f"episodes.id {listed}").bindparams(**given)
        return cast("ColumnElement[bool]", of_hits)
    where = f"o.episode_id = episodes.id AND {match}"
    if (span := asked.span()) is not None:
        where += " AND o.id BETWEEN :oldest AND :newest"
        given |= {"oldest": span[0], "newest": span[1]}
    has_one = text(
        f"EXISTS (SELECT 1 FROM observations o JOIN step_search s ON s.{asked.key} = o.id"
        f" WHERE {where})"
    )
    return cast("ColumnElement[bool]", has_one.bindparams(**given))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A search in the words of the session's database."""

    session: Session
    key: str
    """Column of the index that is an observation's id."""
    match: str
    """The condition; its parameter is `query`."""
    best_order: str
    run_condition: str
    given: dict[str, Any]

    @classmethod
    def of(
        cls,
        session: Session,
        phrases: Sequence[Sequence[str]],
        *,
        run_id: str | None,
        within: Collection[SearchField] | None,
    ) -> Self:
        sqlite = session.get_bind().dialect.name == "sqlite"
        query = (_fts5 if sqlite else _tsquery)(phrases, run_id, within)
        given: dict[str, Any] = {"query": query}
        if run_id is not None:
            given["run_id"] = run_id
        return cls(
            session=session,
            key="rowid" if sqlite else "id",
            match="step_search MATCH :query" if sqlite else "s.document @@ CAST(:query AS tsquery)",
            best_order="s.rank" if sqlite else "ts_rank(s.document, CAST(:query AS tsquery)) DESC",
            run_condition="" if run_id is None else "AND e.run_id = :run_id",
            given=given,
        )

    def newest(self, *, limit: int, before: int | None = None) -> Sequence[int]:
        """Ids of observations, those written last first."""
        condition = "" if before is None else f"AND s.{self.key} < :before"
        given = {} if before is None else {"before": before}
        return self._ids(condition, f"s.{self.key} DESC LIMIT :limit", limit=limit, **given)

    def best(self, *, limit: int, leave_out: int) -> Sequence[int]:
        """Ids of observations, those with most of the words first."""
        order = f"{self.best_order}, s.{self.key} DESC LIMIT :limit OFFSET :leave_out"
        return self._ids("", order, limit=limit, leave_out=leave_out)

    def has_at_most(self, most: int) -> bool:
        """Whether there are no more hits, of what was rolled back too; reads the index alone."""
        if self.key == "id" and self._estimate() > _SURELY_MORE * most:
            return False  # PostgreSQL would read a table's worth of texts to count so many
        hits = f"SELECT 1 FROM step_search s WHERE {self.match} LIMIT :most"
        given = {"query": self.given["query"], "most": most + 1}
        counted = self.session.scalar(text(f"SELECT count(*) FROM ({hits}) AS hits"), given)
        return (counted or 0) <= most

    def _estimate(self) -> float:
        """How many hits PostgreSQL expects; of a word in less than one step of a hundred, 0.5 %."""
        asked = text(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM step_search s WHERE {self.match}")
        planned: Any = self.session.scalar(asked, {"query": self.given["query"]})
        return float(planned[0]["Plan"]["Plan Rows"])

    def span(self) -> tuple[int, int] | None:
        """The ids of the oldest and the newest hit, where the index has both at its ends.

        SQLite's index looks for each step in turn, a tenth of a millisecond for one that is in no
        hit; the steps outside of the span, such as those not indexed yet, need not be looked for.
        """
        if self.key != "rowid":
            return None
        ends = (
            f"(SELECT rowid FROM step_search WHERE {self.match} ORDER BY rowid {order} LIMIT 1)"
            for order in ("ASC", "DESC")
        )
        row = self.session.execute(
            text(f"SELECT {', '.join(ends)}"), {"query": self.given["query"]}
        ).one()
        return row[0], row[1]

    def _ids(self, condition: str, order: str, **given: int) -> Sequence[int]:
        hits = self.match
        if self.key == "id" and self.has_at_most(_MOST_LISTED):
            # PostgreSQL expects to meet one soon, and would read the index of ids from its end.
            hits = f"s.id = ANY(ARRAY(SELECT s.id FROM step_search s WHERE {self.match}))"
        return self.session.scalars(
            text(
                f"""
                SELECT s.{self.key} FROM step_search s
                JOIN observations o ON o.id = s.{self.key}
                JOIN episodes e ON e.id = o.episode_id
                WHERE {hits} {self.run_condition} {condition} AND NOT e.rolled_back
                ORDER BY {order}
                """
            ),
            self.given | given,
        ).all()


def _fts5(
    phrases: Sequence[Sequence[str]], run_id: str | None, within: Collection[SearchField] | None
) -> str:
    # Terms hold letters and digits alone: within quotes none is an operator.
    query = " AND ".join('"' + " ".join(phrase) + '"' for phrase in phrases)
    if within is not None:
        query = " OR ".join(f"({field} : ({query}))" for field in sorted(within))
    return query if run_id is None else f"(run : {run_term(run_id)}) AND ({query})"


_WEIGHTS: dict[SearchField, str] = {"observation": "A", "reply": "B", "prompt": "C"}


def _tsquery(
    phrases: Sequence[Sequence[str]], run_id: str | None, within: Collection[SearchField] | None
) -> str:
    fields = [""] if within is None else [f":{_WEIGHTS[each]}" for each in sorted(within)]
    query = " | ".join(
        "("
        + " & ".join(
            "(" + " <-> ".join(f"'{term}'{field}" for term in phrase) + ")" for phrase in phrases
        )
        + ")"
        for field in fields
    )
    return query if run_id is None else f"'{run_term(run_id)}' & ({query})"


def _hits(session: Session, ids: Sequence[int], phrases: list[list[str]]) -> tuple[SearchHit, ...]:
    if not ids:
        return ()
    about = {
        row.id: row
        for row in session.execute(
            text(
                """
                SELECT o.id, o.episode_id, o.step_index, e.run_id, e.phase, e.training_step,
                       t.environment, t.task_id
                FROM observations o JOIN episodes e ON e.id = o.episode_id
                JOIN tasks t ON t.hash = e.task_hash WHERE o.id IN :ids
                """
            ).bindparams(bindparam("ids", expanding=True)),
            {"ids": ids},
        )
    }
    texts = {each.observation_id: each for each in step_texts(session.connection(), ids=ids)}
    hits: list[SearchHit] = []
    for each in ids:
        row = about[each]
        found_in, snippet = _snippet(texts[each].fields(), phrases)
        hits.append(
            SearchHit(
                episode_id=row.episode_id,
                step_index=row.step_index,
                run_id=row.run_id,
                phase=row.phase,
                training_step=row.training_step,
                environment=row.environment,
                task_id=row.task_id,
                found_in=found_in,
                snippet=snippet,
            )
        )
    return tuple(hits)


def _snippet(fields: dict[SearchField, str], phrases: list[list[str]]) -> tuple[str, str]:
    """Where the first phrase stands, and the characters around it."""
    for field, whole in fields.items():
        places = find_terms(whole, phrases)
        if not places:
            continue
        begin = max(0, places[0].first - _SNIPPET_BEFORE)
        end = min(len(whole), places[0].last + _SNIPPET_AFTER)
        snippet, at = "… " if begin else "", begin
        for first, last in places:
            if last > end:
                break
            snippet += whole[at:first] + MATCH_OPENS + whole[first:last] + MATCH_CLOSES
            at = last
        return field, snippet + whole[at:end] + (" …" if end < len(whole) else "")
    return "observation", fields["observation"][:_SNIPPET_AFTER]
