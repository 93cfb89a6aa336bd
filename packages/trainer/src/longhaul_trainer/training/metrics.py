"""What the episodes of a training step earned, what its rows cost, and how far the engine is off.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from longhaul_core.types import Continuation
from longhaul_trainer.training.credit import Selection, TrainedCall
from longhaul_trainer.training.spans import of_call
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    EpisodeMetadata,
    GroupName,
    PlayedEpisode,
    StepMetadata,
)


def episode_metrics(episodes: Sequence[EpisodeMetadata]) -> dict[str, float]:
    """Returns, lengths and costs of the episodes that a training step played.

    Args:
        episodes: That ended, at least one.
    """
    steps = [step for episode in episodes for step in episode.steps]
    groups = {GroupName(episode.training_step, episode.group_index) for episode in episodes}
    return (
        _of_each_environment(episodes)
        | _prefix_cache(steps)
        | _gateway(episodes)
        | _spelled_marks(steps)
        | {
            "episodes/mean_return": float(np.mean([e.episode_return for e in episodes])),
            "episodes/success_rate": float(np.mean([e.success for e in episodes])),
            "episodes/mean_steps": float(np.mean([len(e.steps) for e in episodes])),
            "episodes/horizon": float(np.mean([e.horizon for e in episodes])),
            "episodes/count": len(episodes),
            "episodes/invalid_action_rate": float(np.mean([not s.action_valid for s in steps])),
            "episodes/prompt_tokens_mean": float(np.mean([s.prompt_tokens for s in steps])),
            "episodes/action_tokens_mean": float(np.mean([s.action_tokens for s in steps])),
            "groups/count": len(groups),
        }
    )


def _prefix_cache(steps: Sequence[StepMetadata]) -> dict[str, float]:
    """Share of prompt tokens from the engine's prefix cache, where it is reported."""
    known = [(step.cached_tokens, step.prompt_tokens) for step in steps]
    cached = [count for count, _ in known if count is not None]
    read = sum(tokens for count, tokens in known if count is not None)
    return {"engine/prefix_cache_hit_rate": sum(cached) / read} if read else {}


def _gateway(episodes: Sequence[EpisodeMetadata]) -> dict[str, float]:
    """What programs called, and how far what they send back drifts from what was sampled."""
    calls = Counter(
        continuation
        for episode in episodes
        for step in episode.steps
        for continuation in step.continuations
    )
    if not calls:
        return {}
    forked, rewritten = calls[Continuation.FORKED], calls[Continuation.REWRITTEN]
    changed = calls[Continuation.CHANGED]
    going_on = calls[Continuation.EXACT] + rewritten + forked + changed
    rates: dict[str, float] = {}
    if going_on:
        rates["gateway/drift_rate"] = (rewritten + forked + changed) / going_on
        rates["gateway/forked_rate"] = forked / going_on
        rates["gateway/changed_rate"] = changed / going_on
    overridden = sum(step.overridden_calls for episode in episodes for step in episode.steps)
    return rates | {
        "gateway/overridden_rate": overridden / calls.total(),
        "gateway/calls_per_episode": calls.total() / len(episodes),
        "gateway/conversations_per_episode": (
            (calls[Continuation.START] + forked + changed) / len(episodes)
        ),
    }


def _spelled_marks(steps: Sequence[StepMetadata]) -> dict[str, float]:
    """Share of steps that newly read what spells a control token of the model's, if any does."""
    rate = float(np.mean([step.spells_mark for step in steps]))
    return {"episodes/spelled_marks_rate": rate} if rate else {}


def _of_each_environment(episodes: Sequence[EpisodeMetadata]) -> dict[str, float]:
    """Return and success rate of each environment, where the training step played several."""
    played: dict[str, list[EpisodeMetadata]] = defaultdict(list)
    for episode in episodes:
        played[episode.environment].append(episode)
    if len(played) == 1:
        return {}
    return {
        f"episodes/{environment}/{name}": float(np.mean(values))
        for environment, members in played.items()
        for name, values in (
            ("mean_return", [episode.episode_return for episode in members]),
            ("success_rate", [episode.success for episode in members]),
        )
    }


def baseline_metrics(greedy: Mapping[str, PlayedEpisode]) -> dict[str, float]:
    """Returns and costs of greedy episodes: their tokens are in no other count."""
    episodes = [played.metadata for played in greedy.values()]
    steps = [step for episode in episodes for step in episode.steps]
    return {
        "baseline/count": len(episodes),
        "baseline/mean_return": float(np.mean([e.episode_return for e in episodes])),
        "baseline/prompt_tokens": sum(step.prompt_tokens for step in steps),
        "baseline/action_tokens": sum(step.action_tokens for step in steps),
    }


def row_metrics(selection: Selection, *, num_rows: int) -> dict[str, float]:
    """Counts over the rows of the episodes that are trained.

    Args:
        selection: Of the training step, with an episode at least.
        num_rows: Rows of all its optimizer steps, those that only fill up counted.
    """
    rows: dict[str, list[CallSpan]] = {}
    for episode in selection.episodes:
        for row, span in episode.played.calls:
            rows.setdefault(row, []).append(span)
    trained = sum(span.action_tokens for spans in rows.values() for span in spans)
    return {
        "rows/count": len(rows),
        "rows/per_episode": len(rows) / len(selection.episodes),
        "rows/padding": num_rows - len(rows),
        "rows/longest": max(s[0].prompt_tokens + s[-1].stop for s in rows.values()),
        "rows/prompt_tokens": sum(spans[0].prompt_tokens for spans in rows.values()),
        "rows/gap_tokens": sum(spans[-1].stop for spans in rows.values()) - trained,
        "rows/trained_tokens": trained,
    }


def agreement(
    policy: Mapping[str, torch.Tensor],
    behavior: Mapping[str, torch.Tensor],
    *,
    calls: Sequence[TrainedCall],
) -> dict[str, float]:
    """How far sampler and learner are apart on the tokens that were sampled.

    `calls` were sampled by the learner's weights, so what is left is arithmetic:
    different kernels, in the precision of `model.engine_dtype`.
    """
    read, sampled = (
        torch.cat([of_call(call.span, logprobs[call.row]) for call in calls]).float()
        for logprobs in (policy, behavior)
    )
    difference = read - sampled
    return {
        "agreement/logprob_difference_mean": difference.abs().mean().item(),
        "agreement/logprob_difference_max": difference.abs().max().item(),
        "agreement/probability_ratio_mean": difference.exp().mean().item(),
    }
