"""What the list of episodes shows, and the words for an episode that other pages use too."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

import streamlit as st

from longhaul_core.exchange.formats import FormatName
from longhaul_core.sql_box.cookbook import quoted
from longhaul_core.store import queries
from longhaul_core.store.queries import (
    EpisodeFilter,
    EpisodeKey,
    EpisodePage,
    EpisodeSort,
    EpisodeSummary,
    HistogramBar,
    HistogramColumn,
    LabelDetail,
)
from longhaul_core.store.records import Phase
from longhaul_core.types import FailureCause
from longhaul_viewer.components.blocks import Badge
from longhaul_viewer.data.store import commit, reading
from longhaul_viewer.settings import store_url

__all__ = [
    "CAUSES",
    "OUTCOMES",
    "PHASES",
    "SORT_KEYS",
    "EpisodeQuery",
    "Outcome",
    "as_sql",
    "badge",
    "bars",
    "count",
    "environments",
    "episodes",
    "export_address",
    "labels",
    "outcome",
    "sample_name",
    "waiting_for_index",
]

PHASES: tuple[Phase, ...] = get_args(Phase)
Outcome = Literal["solved", "not solved", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("solved", "not solved", "failed")
CAUSES = tuple(cause.value for cause in FailureCause)
SORT_KEYS: dict[str, EpisodeSort] = {
    "training step": "training_step",
    "return": "episode_return",
    "steps": "num_steps",
    "tokens written": "num_action_tokens",
    "invalid actions": "num_invalid_actions",
    "seconds": "duration_seconds",
    "started": "started_at",
}
# Columns of the view episode_summary, where they have another name there.
SQL_NAMES: Mapping[str, str] = {"started_at": "started"}


class EpisodeQuery(NamedTuple):
    """Which of a run's episodes a reader wants; None does not restrict, ranges have both ends."""

    run_id: str
    phase: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    environment: str | None = None
    task: str | None = None
    """A task's id."""
    from_step: int | None = None
    to_step: int | None = None
    min_return: float | None = None
    max_return: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    policy_version: int | None = None
    text: str | None = None
    """Words that one step of the episode has."""
    sort: str = "training step"
    """One of `SORT_KEYS`."""
    descending: bool = True

    @property
    def where(self) -> EpisodeFilter:
        """The same for the store."""
        success, failed = {
            None: (None, None),
            "solved": (True, None),
            "not solved": (False, None),
            "failed": (None, True),
        }[self.outcome]
        return EpisodeFilter(
            run_id=self.run_id,
            phase=self.phase,
            min_training_step=self.from_step,
            max_training_step=self.to_step,
            success=success,
            failed=failed,
            failure_cause=self.cause,
            environment=self.environment,
            task_id=self.task,
            min_return=self.min_return,
            max_return=self.max_return,
            min_steps=self.min_length,
            max_steps=self.max_length,
            policy_version=self.policy_version,
            text=self.text,
        )


def episodes(wanted: EpisodeQuery, *, after: EpisodeKey | None, limit: int) -> EpisodePage:
    """A page of the episodes that match; `ConfigError` if `after` is of another order."""
    with reading() as session:
        return queries.list_episodes(
            session,
            where=wanted.where,
            sort=SORT_KEYS[wanted.sort],
            descending=wanted.descending,
            after=after,
            limit=limit,
        )


def count(wanted: EpisodeQuery) -> int:
    """How many episodes match; counted once for each commit of the run."""
    return _count(store_url(), wanted._replace(sort="", descending=True), commit(wanted.run_id))


def bars(wanted: EpisodeQuery, column: HistogramColumn) -> list[HistogramBar]:
    """A histogram of the episodes that match; counted once for each commit of the run."""
    every = wanted._replace(sort="", descending=True)
    return _bars(store_url(), every, column, commit(wanted.run_id))


def waiting_for_index() -> int:
    """How many steps of the store are not in the text index yet, at most."""
    with reading() as session:
        return queries.search_progress(session).num_waiting


def environments(run_id: str) -> list[str]:
    """The environments that the run's episodes were played in."""
    return _environments(store_url(), run_id, commit(run_id))


def labels(episode_ids: Sequence[str]) -> dict[str, list[LabelDetail]]:
    """The labels of each episode."""
    with reading() as session:
        return queries.labels_of(session, episode_ids=episode_ids)


def export_address(wanted: EpisodeQuery, format_name: FormatName) -> str:
    """Where the API gives the list's episodes as a file, whatever their order."""
    restricts = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in asdict(wanted.where).items()
        if value is not None and name != "run_id"
    }
    query = urlencode({"format": format_name, **restricts})
    return f"/api/runs/{quote(wanted.run_id, safe='')}/export?{query}"


def as_sql(wanted: EpisodeQuery, *, limit: int) -> str:
    """The list's first page as a SELECT from the documented views, for a reader to go on from.

    Words are found in the text index by the page, and by `LIKE` here, which finds parts of words
    too.
    """
    equal = {
        "run_id": wanted.run_id,
        "phase": wanted.phase,
        "failure_cause": wanted.cause,
        "environment": wanted.environment,
        "task_id": wanted.task,
    }
    at_least = {
        "training_step": wanted.from_step,
        "episode_return": wanted.min_return,
        "num_steps": wanted.min_length,
    }
    at_most = {
        "training_step": wanted.to_step,
        "episode_return": wanted.max_return,
        "num_steps": wanted.max_length,
    }
    conditions = [f"{name} = {quoted(text)}" for name, text in equal.items() if text is not None]
    for sign, limits in ((">=", at_least), ("<=", at_most)):
        for name, end in limits.items():
            if end is not None:
                conditions.append(f"{name} {sign} {end!r}")
    match wanted.outcome:
        case "solved":
            conditions.append("success")
        case "not solved":
            conditions.append("NOT success")
        case "failed":
            conditions.append("failed")
        case None:
            pass
    if wanted.policy_version is not None:
        versions = "c.policy_version) FROM call_detail c WHERE c.episode_id = e.episode_id)"
        conditions.append(
            f"{wanted.policy_version} BETWEEN (SELECT min({versions}\n"
            f"    AND (SELECT max({versions}"
        )
    conditions += [
        "(EXISTS (SELECT 1 FROM step_texts t WHERE t.episode_id = e.episode_id\n"
        f"    AND lower(t.observation || ' ' || t.replies) LIKE {_like(word)})\n"
        "    OR EXISTS (SELECT 1 FROM episode_messages m WHERE m.episode_id = e.episode_id\n"
        f"    AND lower(m.content) LIKE {_like(word)}))"
        for word in (wanted.text or "").split()
    ]
    column = SORT_KEYS[wanted.sort]
    order = f"{SQL_NAMES.get(column, column)} {'DESC' if wanted.descending else 'ASC'} NULLS LAST"
    return (
        "SELECT episode_id, task_id, phase, training_step, success, failure_cause, "
        "episode_return, num_steps\nFROM episode_summary e\nWHERE "
        + "\n  AND ".join(conditions)
        + f"\nORDER BY {order}\nLIMIT {limit};"
    )


def sample_name(episode: EpisodeSummary) -> str:
    """An episode's place in its group, and which try it is if an earlier one failed."""
    return (
        f"{episode.sample_index} retry {episode.retry}"
        if episode.retry
        else str(episode.sample_index)
    )


def outcome(episode: EpisodeSummary) -> str:
    """Solved, why it stopped, or what broke."""
    if episode.failed:
        return f"failed: {str(episode.failure_cause).replace('_', ' ')}"
    return "solved" if episode.success else str(episode.stop_reason).replace("_", " ")


def badge(episode: EpisodeSummary) -> Badge:
    """The outcome with a colour, and a sign that tells it without one."""
    if episode.failed:
        return Badge(f"⚠ {outcome(episode)}", "warn")
    return (
        Badge(f"✓ {outcome(episode)}", "good")
        if episode.success
        else Badge(f"✕ {outcome(episode)}", "bad")
    )


def _like(word: str) -> str:
    escaped = word.casefold()
    for sign in ("!", "%", "_"):
        escaped = escaped.replace(sign, f"!{sign}")
    return f"{quoted(f'%{escaped}%')} ESCAPE '!'"


@st.cache_data(max_entries=200, show_spinner=False)
def _count(url: str, wanted: EpisodeQuery, commit: int) -> int:
    with reading() as session:
        return queries.count_episodes(session, where=wanted.where)


@st.cache_data(max_entries=300, show_spinner=False)
def _bars(
    url: str, wanted: EpisodeQuery, column: HistogramColumn, commit: int
) -> list[HistogramBar]:
    with reading() as session:
        return queries.episode_histogram(session, where=wanted.where, column=column)


@st.cache_data(max_entries=100, show_spinner=False)
def _environments(url: str, run_id: str, commit: int) -> list[str]:
    with reading() as session:
        return queries.environments(session, run_id=run_id)
