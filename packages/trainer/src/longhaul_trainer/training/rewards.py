"""The reward of each step as advantages see it: the environment's or the run's own, less penalties.

The environment's own reward is stored as it was. Nothing here knows about verl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from longhaul_core.errors import ConfigError
from longhaul_trainer.config.learning import AlgorithmConfig
from longhaul_trainer.losses import kl_estimate
from longhaul_trainer.losses.kl import KlKind
from longhaul_trainer.training.spans import of_action
from longhaul_trainer.training.step_metadata import RowMetadata, StepMetadata


def shaped_rewards(episode: Sequence[StepMetadata], algorithm: AlgorithmConfig) -> np.ndarray:
    """The rewards of one episode, shape `[S]`.

        r_t − invalid_action_penalty · [the action is invalid]
            − overlong_penalty · overlong share
            − reward_kl_coefficient · divergence from the starting model

    with r_t from `algorithm.reward_shaping` where there is such a function, and else the
    environment's.

    Args:
        episode: Notes of its steps, in order.
        algorithm: The penalties.
    """
    rewards = np.array(
        [note.reward if note.hook_reward is None else note.hook_reward for note in episode],
        dtype=np.float64,
    )
    rewards -= algorithm.invalid_action_penalty * np.array([not n.action_valid for n in episode])
    rewards -= algorithm.overlong_penalty * _overlong_shares(episode, algorithm)
    rewards -= algorithm.reward_kl_coefficient * np.array([n.reference_kl for n in episode])
    return rewards


def overlong_share(num_tokens: int, *, start: int, end: int) -> float:
    """Share of the overlong penalty that a reply pays: `clip((n − start) / (end − start), 0, 1)`.

    DAPO's expected maximum length is `start`, its cache `end − start`.

    Args:
        num_tokens: Tokens of the reply (n).
        start: Longest length that pays nothing, at least 0.
        end: Shortest length that pays everything, above `start`.

    Returns:
        In [0, 1].

    Raises:
        ValueError: If `end` is not above `start`.

    Source: Yu et al., 2025, arXiv:2503.14476, eq. 13, with the sign turned.
    """
    if end <= start:
        raise ValueError(f"end must be above start = {start}, got {end}")
    return min(max((num_tokens - start) / (end - start), 0.0), 1.0)


def with_reference_kl(
    notes: RowMetadata,
    *,
    policy: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    kind: KlKind,
) -> dict[str, tuple[StepMetadata, ...]]:
    """`notes`, each step of the rows of `reference` with the divergence summed over its action.

    Args:
        notes: Of all rows.
        policy: Row key → natural log of each token of its response, under the policy before the
            update.
        reference: The same under the frozen reference, for the rows that are trained.
        kind: Estimator.
    """
    found = {
        key: kl_estimate(policy[key].float(), logprobs.float(), kind=kind)
        for key, logprobs in reference.items()
    }
    return {
        key: tuple(
            note._replace(reference_kl=float(of_action(note, found[key]).sum()))
            if key in found
            else note
            for note in row
        )
        for key, row in notes.items()
    }


def refuse_hook_errors(notes: RowMetadata) -> None:
    """End the run where `algorithm.reward_shaping` did not give an episode its rewards.

    Raises:
        ConfigError: With the first such episode's message.
    """
    problem = next((n.hook_error for row in notes.values() for n in row if n.hook_error), "")
    if problem:
        raise ConfigError(problem)


def _overlong_shares(episode: Sequence[StepMetadata], algorithm: AlgorithmConfig) -> np.ndarray:
    """Shape `[S]`; of an episode measured as a whole, the last step's alone is not 0."""
    shares = np.zeros(len(episode))
    start, end = algorithm.overlong_start_tokens, algorithm.overlong_end_tokens
    if start is None or end is None:
        return shares
    if algorithm.overlong_unit == "episode":
        total = sum(note.action_tokens for note in episode)
        shares[-1] = overlong_share(total, start=start, end=end)
    else:
        shares[:] = [overlong_share(n.action_tokens, start=start, end=end) for n in episode]
    return shares
