"""Full-text search over observations and replies; `maintenance.index_text` fills its index."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from longhaul_core.store.packing import storable_text
from longhaul_core.store.queries.answers import Answer

__all__ = ["SearchHit", "search_steps"]


@dataclass(frozen=True, slots=True)
class SearchHit(Answer):
    """A step whose text matches."""

    episode_id: str
    step_index: int
    phase: str
    training_step: int
    environment: str
    task_id: str
    snippet: str
    """Around the first match, matches between U+E000 and U+E001: mark them after escaping."""


_SQLITE = """
SELECT c.episode_id, c.step_index, e.phase, e.training_step, t.environment, t.task_id,
       snippet(step_search, -1, :opening, :closing, ' … ', 16)
FROM step_search
JOIN step_texts c ON c.id = step_search.rowid
JOIN episodes e ON e.id = c.episode_id
JOIN tasks t ON t.hash = e.task_hash
WHERE step_search MATCH :query AND (:run_id IS NULL OR e.run_id = :run_id) AND NOT e.rolled_back
ORDER BY step_search.rowid DESC LIMIT :limit
"""

_POSTGRESQL = """
SELECT c.episode_id, c.step_index, e.phase, e.training_step, t.environment, t.task_id,
       ts_headline('simple', c.observation || E'\\n' || c.replies, query,
                   'MaxWords=16, MinWords=8, MaxFragments=1, StartSel=' || :opening
                   || ', StopSel=' || :closing)
FROM plainto_tsquery('simple', :query) query
JOIN step_search ON step_search.document @@ query
JOIN step_texts c ON c.id = step_search.id
JOIN episodes e ON e.id = c.episode_id
JOIN tasks t ON t.hash = e.task_hash
WHERE (CAST(:run_id AS text) IS NULL OR e.run_id = :run_id) AND NOT e.rolled_back
ORDER BY step_search.id DESC LIMIT :limit
"""

MATCH_OPENS, MATCH_CLOSES = "\ue000", "\ue001"


def search_steps(
    session: Session, *, words: str, run_id: str | None = None, limit: int = 50
) -> list[SearchHit]:
    """Steps of the lineage whose text holds all the words, those written last first.

    The text is the observation and the replies of the step's calls. Only steps that
    `maintenance.index_text` has indexed are found. They are not ranked: that would read every hit
    of a frequent word.

    Args:
        session: Only read from.
        words: Words in any order; signs between them do not matter, case does not either.
        run_id: Only this run; None means all.
        limit: At most so many.
    """
    dialect = session.get_bind().dialect.name
    # Quoted, a word is a word: FTS5 has operators that a person may type by accident.
    query = storable_text(words)
    if dialect == "sqlite":
        query = " ".join('"' + word.replace('"', '""') + '"' for word in query.split())
    if not query.strip():
        return []
    rows = session.execute(
        text(_SQLITE if dialect == "sqlite" else _POSTGRESQL),
        {
            "query": query,
            "run_id": run_id,
            "limit": limit,
            "opening": MATCH_OPENS,
            "closing": MATCH_CLOSES,
        },
    )
    return [SearchHit(*row) for row in rows]
