"""What the steps of stored episodes were worth, by the continuations that the store has of them.

`trainer credit-truth` plays two disjoint sets for each step that it samples: one whose action
whoever goes on chooses (V), and one that takes the stored action first (Q). Their runs are of kind
`branch`, and their names begin with `TRUTH`. Continuations of `trainer branch` are left out: there
both sets have the same seeds.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from longhaul_core.evaluation import Interval
from longhaul_core.store.models import CallRow, EpisodeRow, RunRow, StepRow
from longhaul_core.store.queries.base import Answer
from longhaul_core.store.queries.group_steps import in_parts
from longhaul_core.store.queries.replay.outline import require_episode
from longhaul_core.truth.sampled import sampled_advantage

__all__ = [
    "TRUTH",
    "ContinuedBy",
    "ContinuedStep",
    "SampledMean",
    "SampledStep",
    "SampledTruth",
    "continued_steps",
    "sampled_by",
    "sampled_truth",
]

TRUTH = "truth-"
"""How the name of a run begins whose continuations measure V and Q; then comes who goes on."""
_PLAYED_BY: Mapping[str, frozenset[str]] = {
    "environment": frozenset({"id", "options"}),
    "rollout": frozenset(
        {"temperature", "top_p", "max_reply_tokens", "max_prompt_tokens", "max_episode_tokens"}
    ),
    "model": frozenset({"pictures", "chat_template", "chat_template_kwargs", "engine_dtype"}),
    "algorithm": frozenset({"discount"}),
}
"""Settings that decide what is played, of sections that have others too; the weights are in the
run's name."""
_WHOLE = ("seed", "memory", "agent", "prompt", "actions")
"""Sections that decide it as a whole."""


class ContinuedBy(NamedTuple):
    """Continuations of equal keys are of one policy, under the same settings and seeds."""

    name: str
    """Of the run, without `TRUTH`: who goes on, with a hash of the weights or of the address."""
    settings: str
    """JSON: the settings that decide what is played."""

    @classmethod
    def of(cls, name: str, config: Mapping[str, Any]) -> "ContinuedBy":
        """The key of a run with this name and resolved configuration."""
        kept: dict[str, Any] = {key: config.get(key) for key in _WHOLE}
        for section, names in _PLAYED_BY.items():
            kept[section] = _some(config.get(section) or {}, names)
        names = _PLAYED_BY["environment"].union(_WHOLE)
        kept["environments"] = [_some(each, names) for each in config.get("environments") or ()]
        return cls(name.removeprefix(TRUTH), json.dumps(kept, sort_keys=True))

    @property
    def discount(self) -> float:
        """Per step; 1 where the configuration names none."""
        return float(json.loads(self.settings).get("algorithm", {}).get("discount", 1.0))


def _some(section: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key in names}


class ContinuedStep(NamedTuple):
    """What was continued."""

    episode_id: str
    step_index: int
    takes_stored_action: bool
    """Whether the stored action was given; else whoever goes on chose it."""


Returns = Mapping[int, float]
"""Discounted, from the step on, of the continuations that ended; by their `sample_index`."""


@dataclass(frozen=True, slots=True)
class SampledMean(Answer):
    """A mean discounted return, and Wilson's interval of 95 %."""

    estimate: float
    """The mean, or the difference of two."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    num_continuations: int
    """That ended, and were counted."""


@dataclass(frozen=True, slots=True)
class SampledStep(Answer):
    """What one step's action was worth."""

    step_index: int
    value: SampledMean
    """V: whoever goes on chooses the action."""
    action_value: SampledMean
    """Q: the stored action is taken first."""
    advantage: SampledMean
    """Q - V, with the interval of a difference of independent means."""
    has_effect: bool
    """Whether that interval leaves out 0."""


@dataclass(frozen=True, slots=True)
class SampledTruth(Answer):
    """An episode's steps by one policy."""

    continued_by: str
    """Who goes on: `random`, `expert`, or a model."""
    discount: float
    """Per step, of the returns."""
    steps: tuple[SampledStep, ...]
    """Those of which both V and Q are sampled, in order."""


def sampled_truth(session: Session, *, episode_id: str) -> tuple[SampledTruth, ...]:
    """V, Q and Q - V of an episode's steps, by each policy that continued them.

    Args:
        session: Only read from.
        episode_id: Which.

    Raises:
        LookupError: There is no such episode.
    """
    require_episode(session, episode_id)
    found = continued_steps(session, [episode_id])
    return tuple(SampledTruth(by.name, by.discount, _steps(found[by])) for by in sorted(found))


def _steps(continued: Mapping[ContinuedStep, Returns]) -> tuple[SampledStep, ...]:
    steps: list[SampledStep] = []
    for step in sorted(continued):
        if step.takes_stored_action:
            continue
        taken = continued.get(step._replace(takes_stored_action=True))
        if taken is None:
            continue
        sampled = sampled_advantage(list(continued[step].values()), list(taken.values()))
        steps.append(
            SampledStep(
                step.step_index,
                _mean(sampled.value),
                _mean(sampled.action_value),
                _mean(sampled.advantage),
                sampled.has_effect,
            )
        )
    return tuple(steps)


def _mean(found: Interval) -> SampledMean:
    return SampledMean(found.estimate, found.low, found.high, found.num_units)


def continued_steps(
    session: Session, episode_ids: Collection[str]
) -> dict[ContinuedBy, dict[ContinuedStep, Returns]]:
    """The continuations that measure V and Q of these episodes' steps, each draw once.

    The rewards are the environment's.

    Args:
        session: Only read from.
        episode_ids: Of the episodes that are continued.
    """
    runs = {
        run_id: ContinuedBy.of(name, json.loads(config_json))
        for run_id, name, config_json in session.execute(
            select(RunRow.id, RunRow.name, RunRow.config_json)
            .where(RunRow.kind == "branch", RunRow.name.startswith(TRUTH))
            .order_by(RunRow.id)
        )
    }
    found: dict[ContinuedBy, dict[ContinuedStep, dict[int, float]]] = {}
    for part in in_parts(sorted(episode_ids)):
        for row in _episodes(session, sorted(runs), part):
            by = runs[row.run_id]
            step = ContinuedStep(row.episode_id, row.step_index, row.takes_stored_action)
            of_step = found.setdefault(by, {}).setdefault(step, {})
            of_step.setdefault(row.sample_index, row.discounted_return(by.discount))
    return {by: dict(steps) for by, steps in found.items()}


def sampled_by(
    session: Session, run_id: str, *, policy_version: int, limit: int
) -> list[tuple[str, str]]:
    """Episodes of a run in which its weights of one version sampled a reply, with their phases.

    Args:
        session: Only read from.
        run_id: Whose.
        policy_version: Optimizer steps behind the weights.
        limit: At most so many; the first by their ids.
    """
    rows = session.execute(
        select(EpisodeRow.id, EpisodeRow.phase)
        .join(CallRow, CallRow.episode_id == EpisodeRow.id)
        .where(
            EpisodeRow.run_id == run_id,
            EpisodeRow.phase != "demonstration",
            EpisodeRow.failed.is_(False),
            EpisodeRow.rolled_back.is_(False),
            EpisodeRow.retention.is_(None) | (EpisodeRow.retention != "removed"),
            CallRow.policy_version == policy_version,
        )
        .distinct()
        .order_by(EpisodeRow.id)
        .limit(limit)
    )
    return [(episode_id, phase) for episode_id, phase in rows]


class _Continuation(NamedTuple):
    run_id: str
    sample_index: int
    episode_id: str
    """Of the episode that it continues."""
    step_index: int
    takes_stored_action: bool
    rewards: Sequence[tuple[int, float]]
    """That are not 0, with their steps."""

    def discounted_return(self, discount: float) -> float:
        """From the step on."""
        return sum(reward * discount ** (at - self.step_index) for at, reward in self.rewards)


def _episodes(
    session: Session, run_ids: Sequence[str], episode_ids: Sequence[str]
) -> list[_Continuation]:
    """Those that ended, in an order that no database changes."""
    if not run_ids:
        return []
    ended = (
        EpisodeRow.run_id.in_(run_ids),
        EpisodeRow.phase == "branch",
        EpisodeRow.branched_from.in_(episode_ids),
        EpisodeRow.failed.is_(False),
    )
    paid: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for episode_id, at, reward in session.execute(
        select(StepRow.episode_id, StepRow.step_index, StepRow.reward)
        .join(EpisodeRow, EpisodeRow.id == StepRow.episode_id)
        .where(*ended, StepRow.step_index >= EpisodeRow.branched_at_step, StepRow.reward != 0.0)
        .order_by(StepRow.episode_id, StepRow.step_index)
    ):
        paid[episode_id].append((at, reward))
    rows = session.execute(
        select(
            EpisodeRow.id,
            EpisodeRow.run_id,
            EpisodeRow.sample_index,
            EpisodeRow.branched_from,
            EpisodeRow.branched_at_step,
            EpisodeRow.branched_action.is_not(None),
        )
        .where(*ended)
        .order_by(EpisodeRow.run_id, EpisodeRow.group_index, EpisodeRow.sample_index)
    )
    return [
        _Continuation(run_id, sample, source, step, bool(taken), paid[own])
        for own, run_id, sample, source, step, taken in rows
        if source is not None and step is not None
    ]
