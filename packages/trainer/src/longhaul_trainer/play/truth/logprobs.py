"""Stored replies by the logprobs of their tokens: a small policy in this process, and the engine's.

By them the two are compared before anything is sampled here, and they are credit of a kind: what a
policy is sure of, and what training made likelier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, cast

import numpy as np
from sqlalchemy.orm import Session

from longhaul_core.errors import ConfigError
from longhaul_core.store import queries
from longhaul_core.store.records import Phase
from longhaul_core.types import SampledTokens
from longhaul_trainer.config import RunConfig
from longhaul_trainer.play.players import temperature_of, top_p_of
from longhaul_trainer.play.truth.selection import MeasuredStep, Place

if TYPE_CHECKING:
    from longhaul_trainer.play.small_policy import SmallModel

__all__ = [
    "EngineCheck",
    "check_against_engine",
    "logprob_credit",
    "reply_logprobs",
    "sampled_replies",
]

TOLERANCES: Mapping[str, float] = {"float32": 1e-3}
"""Nats by which the logprob of a token may differ, by `model.engine_dtype`."""
ROUGH_TOLERANCE = 0.1
"""Of the other types, which round every weight to 8 or 11 bits."""
_ROUNDING = 1e-4
"""Nats: log-ratios of equal weights in this process."""
_MOST_EPISODES = 64
_MOST_CALLS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCheck:
    """Stored replies that the same weights sampled in the engine."""

    num_calls: int
    num_tokens: int
    largest: float
    """Difference of a token's logprob, in nats."""
    tolerance: float


def check_against_engine(
    session: Session, run_id: str, played: RunConfig, model: SmallModel, *, policy_version: int
) -> EngineCheck | None:
    """Compare logprobs of stored replies with those that the weights give them here.

    Args:
        session: Only read from.
        run_id: The run that sampled them.
        played: Its configuration.
        model: Its weights.
        policy_version: Of these weights.

    Returns:
        None where none of its calls was sampled by these weights, but greedily.

    Raises:
        ConfigError: A token's logprob differs by more than the tolerance.
    """
    calls: list[tuple[tuple[float, float], SampledTokens]] = []
    found = queries.sampled_by(session, run_id, policy_version=policy_version, limit=_MOST_EPISODES)
    for episode_id, phase in found:
        drawn_by = (
            temperature_of(played, cast("Phase", phase)),
            top_p_of(played, cast("Phase", phase)),
        )
        episode = queries.recorded_episode(session, episode_id)
        calls += [
            (drawn_by, call.sampled)
            for step in episode.steps
            for call in step.calls
            if call.sampled is not None
            and call.sampled.behavior_logprobs is not None
            and call.sampled.policy_version == policy_version
            and drawn_by[0] > 0.0
        ]
    chosen = calls[:: -(-len(calls) // _MOST_CALLS) or 1]
    if not chosen:
        return None
    tolerance = _tolerance(played)
    # Elsewhere an update may come within a reply, which has the version of its beginning.
    compared = None if played.trainer.mode == "sync" else 1
    num_tokens, largest = 0, 0.0
    for temperature, top_p in {drawn_by for drawn_by, _ in chosen}:
        alike = [call for drawn_by, call in chosen if drawn_by == (temperature, top_p)]
        here = reply_logprobs(model, alike, temperature=temperature, top_p=top_p)
        for call, logprobs in zip(alike, here, strict=True):
            stored_K = np.array(call.behavior_logprobs)[:compared]
            num_tokens += len(stored_K)
            # Not to be drawn here is -inf, and further away than any tolerance.
            largest = max(largest, float(np.abs(np.array(logprobs)[:compared] - stored_K).max()))
    if not largest <= tolerance:
        raise ConfigError(
            f"the weights give a stored reply of {run_id} other logprobs here than in its engine: "
            f"a token's differ by {largest:.3g} nats, and {tolerance:g} are allowed "
            f"(model.engine_dtype = {played.model.engine_dtype!r}, {len(chosen):,} calls); the "
            "weights, the temperature or top_p are not those that sampled them"
        )
    return EngineCheck(
        num_calls=len(chosen), num_tokens=num_tokens, largest=largest, tolerance=tolerance
    )


def _tolerance(played: RunConfig) -> float:
    return TOLERANCES.get(played.model.engine_dtype, ROUGH_TOLERANCE)


def reply_logprobs(
    model: SmallModel, calls: Sequence[SampledTokens], *, temperature: float, top_p: float
) -> list[list[float]]:
    """The logprob of each token of stored replies, as the sampler would draw it.

    Args:
        model: The weights.
        calls: Prompts and replies.
        temperature: Above 0.
        top_p: In (0, 1].
    """
    from longhaul_trainer.play.small_policy import token_shares  # imports torch

    texts = [(*call.prompt_tokens, *call.action_tokens[:-1]) for call in calls]
    found = model.last_logits(texts, [len(call.action_tokens) for call in calls])
    with np.errstate(divide="ignore"):
        return [
            [
                float(np.log(token_shares(logits_V, temperature=temperature, top_p=top_p)[token]))
                for logits_V, token in zip(logits_KV, call.action_tokens, strict=True)
            ]
            for logits_KV, call in zip(found, calls, strict=True)
        ]


def sampled_replies(steps: Sequence[MeasuredStep]) -> dict[Place, SampledTokens]:
    """The replies that steps' actions were read from, of those where a policy of ours replied."""
    acts = (((step.episode_id, step.step_index), step.choice.stored.act) for step in steps)
    return {
        place: act.sampled for place, act in acts if act is not None and act.sampled is not None
    }


def logprob_credit(
    steps: Sequence[MeasuredStep],
    played: RunConfig,
    *,
    model: SmallModel | None = None,
    start: SmallModel | None = None,
) -> dict[str, dict[Place, float]]:
    r"""Credit of measured steps by the logprobs of the replies that their actions were read from.

    Summed over the tokens of a reply, in nats, at the temperature and `top_p` of training:

        confidence               = Σ log π_sampler
        log-ratio to the sampler = Σ log π_model - Σ log π_sampler
        log-ratio to the start   = Σ log π_model - Σ log π_start

    A ratio to the start within 1e-4 is 0, and one to the sampler, which is another program, within
    the tolerance of each token. A step has none where no policy of ours replied.

    Source:
        Self-confidence of arXiv:2608.19760; implicit rewards of Rafailov et al. 2023,
        arXiv:2305.18290, eq. 5 with β = 1.

    Args:
        steps: Of training.
        played: The configuration of the run that sampled them.
        model: The weights that go on, where they are small.
        start: Those that the run began with, where they are small.
    """
    by_place = {
        place: sampled
        for place, sampled in sampled_replies(steps).items()
        if sampled.behavior_logprobs is not None
    }
    if not by_place:
        return {}
    places, calls = list(by_place), list(by_place.values())
    temperature, top_p = temperature_of(played, "train"), top_p_of(played, "train")

    def sums(weights: SmallModel) -> list[float]:
        found = reply_logprobs(weights, calls, temperature=temperature, top_p=top_p)
        return [sum(logprobs) for logprobs in found]

    sampler = [sum(call.behavior_logprobs or ()) for call in calls]
    credit = {"*confidence*": dict(zip(places, sampler, strict=True))}
    if model is not None:
        here = sums(model)
        apart = [_tolerance(played) * len(call.action_tokens) for call in calls]
        others = {"*log-ratio to the sampler*": (sampler, apart)}
        if start is not None:
            others["*log-ratio to the start*"] = (sums(start), [_ROUNDING] * len(calls))
        for name, (other, roundings) in others.items():
            ratios = (one - two for one, two in zip(here, other, strict=True))
            credit[name] = {
                place: 0.0 if abs(ratio) <= rounding else ratio
                for place, ratio, rounding in zip(places, ratios, roundings, strict=True)
                if isfinite(ratio)  # a token that cannot be drawn any more has no logprob
            }
    return credit
