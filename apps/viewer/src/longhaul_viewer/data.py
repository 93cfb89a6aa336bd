"""Everything the pages read. The only module of the viewer that touches the store.

Each function asks one query and shapes its answer for a page; what a page shows as a
number was computed by the store or here, never in the page. Nothing is cached but the
engine: a page shows what the store holds now.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from longhaul_core.store import queries
from longhaul_core.store.addresses import describe_store, store_errors
from longhaul_core.store.addresses import store_url as parsed_url
from longhaul_core.store.queries import (
    CallTokens,
    CurvePoint,
    EpisodeDetail,
    EpisodeFilter,
    EpisodePage,
    EpisodeSort,
    EpisodeSummary,
    EvaluationResult,
    GroupDetail,
    RunSummary,
    StoredPicture,
)
from longhaul_core.store.session import read_only_engine
from longhaul_viewer.components.charts import Series, StripStep
from longhaul_viewer.components.tokens import DRIFT, Scale, Token
from longhaul_viewer.links import GroupKey
from longhaul_viewer.settings import store_url

FOLLOW_SECONDS = 3.0
"""How often a page is read again while a run goes on."""
SORT_KEYS: dict[str, EpisodeSort] = {
    "training step": "training_step",
    "return": "episode_return",
    "steps": "num_steps",
    "tokens written": "num_action_tokens",
    "invalid actions": "num_invalid_actions",
    "seconds": "duration_seconds",
}

Outcome = Literal["solved", "not solved", "failed"]


class EpisodeQuery(NamedTuple):
    """What a reader wants to see of a run's episodes; None does not restrict."""

    run_id: str
    phase: str | None = None
    outcome: Outcome | None = None
    training_step: int | None = None
    sort: str = "training step"
    """One of `SORT_KEYS`."""
    descending: bool = True


class RunCurve(NamedTuple):
    """The three curves of a run, one series per phase."""

    returns: list[Series]
    success: list[Series]
    lengths: list[Series]


def store_name() -> str:
    """The store's address for people, without its password."""
    return describe_store(parsed_url(store_url()))


def runs() -> list[RunSummary]:
    """All runs, newest first."""
    with _reading() as session:
        return queries.list_runs(session, limit=1000)


def run(run_id: str) -> RunSummary:
    """One run; `LookupError` if there is none."""
    with _reading() as session:
        return queries.get_run(session, run_id=run_id).summary


def status(run: RunSummary) -> str:
    """The run's status, and how long it has been silent if it should not be."""
    now = time.time()
    if queries.is_silent(run.status, run.heartbeat_at, now=now):
        return f"silent for {(now - run.heartbeat_at) / 60:.0f} min"
    return run.status


def progress(run: RunSummary) -> float | None:
    """Share of the planned training steps that are done; None if none were planned."""
    planned = run.num_training_steps
    return min(run.num_training_steps_done / planned, 1.0) if planned else None


def training_returns(run_id: str) -> list[float]:
    """Mean return of each training step, in order."""
    with _reading() as session:
        points = queries.training_curve(session, run_id=run_id, phase="train")
    return [point.mean_return for point in points if point.mean_return is not None]


def curve(run_id: str) -> RunCurve:
    """Return, success and length over training steps, a series for each phase."""
    with _reading() as session:
        points = queries.training_curve(session, run_id=run_id)
    phases = [
        (phase, [point for point in points if point.phase == phase])
        for phase in ("train", "baseline", "validation", "test")
    ]
    return RunCurve(
        returns=[_series(phase, [(p, p.mean_return) for p in of]) for phase, of in phases],
        success=[_series(phase, [(p, p.success_rate) for p in of]) for phase, of in phases],
        lengths=[_series(phase, [(p, p.mean_num_steps) for p in of]) for phase, of in phases],
    )


def evaluations(run_id: str) -> list[EvaluationResult]:
    """Results on the run's panels."""
    with _reading() as session:
        return queries.evaluations(session, run_id=run_id)


def metric_names(run_id: str) -> list[str]:
    """Names of all stored metrics."""
    with _reading() as session:
        return queries.metric_names(session, run_id=run_id)


def metric_series(run_id: str, names: Sequence[str]) -> list[Series]:
    """The named metrics over training steps; steps without a number are left out."""
    with _reading() as session:
        found = queries.metric_series(session, run_id=run_id, names=names)
    series: list[Series] = []
    for name in names:
        known = [(p.training_step, p.value) for p in found[name] if p.value is not None]
        series.append(Series(name, [step for step, _ in known], [value for _, value in known]))
    return series


def training_steps(run_id: str) -> list[int]:
    """The training steps that have episodes."""
    with _reading() as session:
        points = queries.training_curve(session, run_id=run_id)
    return sorted({point.training_step for point in points})


def episodes(wanted: EpisodeQuery, *, offset: int, limit: int) -> EpisodePage:
    """A page of the episodes that match."""
    success, failed = {
        None: (None, None),
        "solved": (True, None),
        "not solved": (False, None),
        "failed": (None, True),
    }[wanted.outcome]
    where = EpisodeFilter(
        run_id=wanted.run_id,
        phase=wanted.phase,
        min_training_step=wanted.training_step,
        max_training_step=wanted.training_step,
        success=success,
        failed=failed,
    )
    with _reading() as session:
        return queries.list_episodes(
            session,
            where=where,
            sort=SORT_KEYS[wanted.sort],
            descending=wanted.descending,
            limit=limit,
            offset=offset,
        )


def episode(episode_id: str) -> EpisodeDetail:
    """One episode with its steps; `LookupError` if there is none."""
    with _reading() as session:
        return queries.get_episode(session, episode_id=episode_id)


def group(key: GroupKey) -> GroupDetail:
    """A group and its episodes by sample_index and retry; `LookupError` if there is none."""
    with _reading() as session:
        return queries.get_group(
            session,
            run_id=key.run_id,
            attempt=key.attempt,
            phase=key.phase,
            training_step=key.training_step,
            group_index=key.group_index,
        )


def sample_name(episode: EpisodeSummary) -> str:
    """An episode's place in its group, and which try it is if an earlier one failed."""
    return (
        f"{episode.sample_index} retry {episode.retry}"
        if episode.retry
        else str(episode.sample_index)
    )


def group_of(episode: EpisodeSummary) -> GroupKey:
    """The group that an episode belongs to."""
    return GroupKey(
        run_id=episode.run_id,
        attempt=episode.attempt,
        phase=episode.phase,
        training_step=episode.training_step,
        group_index=episode.group_index,
    )


def strip(episode: EpisodeDetail) -> list[StripStep]:
    """What the overview shows of each step."""
    return [
        StripStep(
            step=step.step_index,
            reward=step.reward,
            advantage=step.advantage,
            action=step.action,
            valid=step.action_valid,
        )
        for step in episode.steps
    ]


def outcome(episode: EpisodeSummary) -> str:
    """Solved, why it stopped, or what broke."""
    if episode.failed:
        return f"failed: {str(episode.failure_cause).replace('_', ' ')}"
    return "solved" if episode.success else str(episode.stop_reason).replace("_", " ")


def picture_bytes(pictures: Sequence[StoredPicture]) -> dict[str, bytes]:
    """The bytes of pictures, by their hashes."""
    with _reading() as session:
        return {
            key: queries.get_media(session, content_hash=key).data
            for key in sorted({picture.content_hash for picture in pictures})
        }


def reply_tokens(run_id: str, call: CallTokens, scale: Scale) -> list[Token]:
    """The tokens of a reply with what `scale` colours.

    The scale is the sampler's logprob, or the learner's minus the sampler's.
    """
    values = call.behavior_logprobs
    if scale is DRIFT and call.policy_logprobs is not None:
        pairs = zip(call.policy_logprobs, call.behavior_logprobs, strict=True)
        values = tuple(learner - sampler for learner, sampler in pairs)
    pieces = _pieces(run_id, call.action_tokens)
    return [
        Token(token_id, pieces.get(token_id), value)
        for token_id, value in zip(call.action_tokens, values, strict=True)
    ]


def prompt_tokens(run_id: str, call: CallTokens) -> list[Token]:
    """The tokens of a prompt, which nobody scored."""
    pieces = _pieces(run_id, call.prompt_tokens)
    return [Token(token_id, pieces.get(token_id)) for token_id in call.prompt_tokens]


def _pieces(run_id: str, token_ids: Sequence[int]) -> dict[int, bytes]:
    with _reading() as session:
        return queries.token_pieces(session, run_id=run_id, token_ids=token_ids)


def _series(phase: str, points: Sequence[tuple[CurvePoint, float | None]]) -> Series:
    known = [(point.training_step, value) for point, value in points if value is not None]
    return Series(
        phase,
        [step for step, _ in known],
        [value for _, value in known],
        "line" if phase == "train" else "points",
    )


@contextmanager
def _reading() -> Generator[Session]:
    with store_errors(store_name()), Session(_engine(store_url())) as session:
        yield session


@st.cache_resource(show_spinner=False)
def _engine(url: str) -> Engine:
    """One engine for all readers of this process."""
    return read_only_engine(url)
