"""What pairs of stored episodes or steps are compared by: how much likelier than to the reference.

Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import fsum

import numpy as np
import torch

from longhaul_core.advantages.preferences import (
    Pair,
    PreferenceSettings,
    pair_losses,
)
from longhaul_trainer.training.credit import TrainedEpisode, preferences_of
from longhaul_trainer.training.spans import of_call
from longhaul_trainer.training.step_metadata import (
    CallSpan,
    Episode,
    PlayedEpisode,
)


def logprob_sum(span: CallSpan, response_T: torch.Tensor) -> float:
    """Natural log of a call's reply, as a sum in float64.

    Args:
        span: Of the call.
        response_T: Natural log of each token of its row's response.
    """
    return float(of_call(span, response_T).double().sum())


def gains_over_reference(
    episodes: Mapping[Episode, PlayedEpisode],
    *,
    policy: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
) -> dict[Episode, tuple[float, ...]]:
    """Of each step, `log π − log π_ref`, summed over the tokens of all its trained calls.

    Args:
        episodes: Those that are trained.
        policy: Row key → natural log of each token of its response, under the policy before the
            update.
        reference: The same under the weights that the run starts from.
    """
    return {
        name: tuple(
            fsum(
                logprob_sum(span, policy[row]) - logprob_sum(span, reference[row])
                for row, span in episode.calls
                if span.step == step
            )
            for step in range(len(episode.metadata.steps))
        )
        for name, episode in episodes.items()
    }


def preference_metrics(
    episodes: Sequence[TrainedEpisode],
    *,
    gains: Mapping[Episode, Sequence[float]],
    settings: PreferenceSettings,
) -> dict[str, float]:
    """Loss, accuracy and margin of the pairs, before the update; of no pairs, their number.

    Args:
        episodes: Of the training step, groups together.
        gains: Of each of them; see `gains_over_reference`.
        settings: Which pairs.
    """
    by_group: dict[str, list[TrainedEpisode]] = {}
    for episode in episodes:
        by_group.setdefault(episode.name.group, []).append(episode)
    pairs = chain.from_iterable(_pairs(group, gains, settings) for group in by_group.values())
    margins = [pair.margin for pair in pairs]
    if not margins:
        return {"dpo/pairs": 0.0}
    return {
        "dpo/pairs": float(len(margins)),
        "dpo/loss": float(pair_losses(margins).mean()),
        "dpo/accuracy": sum(margin > 0 for margin in margins) / len(margins),
        "dpo/margin": fsum(margins) / len(margins),
    }


def _pairs(
    group: Sequence[TrainedEpisode],
    gains: Mapping[Episode, Sequence[float]],
    settings: PreferenceSettings,
) -> list[Pair]:
    preferences = preferences_of(
        [one.metadata for one in group],
        gains=[gains[one.name] for one in group],
        settings=settings,
    )
    return preferences.pairs([np.array(one.shaped_rewards) for one in group])
