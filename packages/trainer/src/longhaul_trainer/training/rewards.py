"""The reward of each step as advantages see it: the environment's or the run's own, less penalties.

The environment's own reward is stored as it was. Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from longhaul_core.advantages.penalties import Penalties, penalised_rewards
from longhaul_core.errors import ConfigError
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.losses import kl_estimate
from longhaul_trainer.losses.kl import KlKind
from longhaul_trainer.training.spans import FloatArray, of_call
from longhaul_trainer.training.step_metadata import Episode, EpisodeMetadata, PlayedEpisode


def shaped_rewards(
    episode: PlayedEpisode,
    algorithm: AlgorithmConfig,
    *,
    reference_kl: FloatArray | None = None,
) -> FloatArray:
    """The rewards of one episode, shape `[S]`, of which returns are made.

        r_t − invalid_action_penalty · [the action is invalid], if it is on the return
            − overlong_penalty · overlong share
            − reward_kl_coefficient · divergence from the starting model

    with r_t from `algorithm.reward_shaping` where there is such a function, and else the
    environment's. A step is as long as its trained calls together.

    Args:
        episode: One that ended.
        algorithm: The penalties.
        reference_kl: Divergence of each step, shape `[S]`; None where it is not known, and 0 then.
    """
    steps = episode.metadata.steps
    rewards = penalised_rewards(
        [step.reward if step.hook_reward is None else step.hook_reward for step in steps],
        [step.action_valid for step in steps],
        episode.trained_tokens,
        Penalties.model_validate(algorithm),
    )
    if reference_kl is not None:
        rewards -= algorithm.reward_kl_coefficient * reference_kl
    return rewards


def reference_divergences(
    episodes: Mapping[Episode, PlayedEpisode],
    *,
    policy: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    kind: KlKind,
) -> dict[Episode, FloatArray]:
    """For each episode, the divergence of each step from the starting model, shape `[S]`.

    It is summed over the tokens of the step's trained calls.

    Args:
        episodes: Those that are trained.
        policy: Row key → natural log of each token of its response, under the policy before the
            update.
        reference: The same under the frozen reference.
        kind: Estimator.
    """
    found: dict[Episode, FloatArray] = {}
    for name, episode in episodes.items():
        of_rows = {
            row: kl_estimate(policy[row].float(), reference[row].float(), kind=kind)
            for row in episode.rows
        }
        steps = np.zeros(len(episode.metadata.steps))
        for row, span in episode.calls:
            steps[span.step] += float(of_call(span, of_rows[row]).sum())
        found[name] = steps
    return found


def refuse_hook_errors(episodes: Iterable[EpisodeMetadata]) -> None:
    """End the run where `algorithm.reward_shaping` did not return an episode's rewards.

    Raises:
        ConfigError: With the first such episode's message.
    """
    problem = next((episode.hook_error for episode in episodes if episode.hook_error), "")
    if problem:
        raise ConfigError(problem)
