"""GiGPO: GRPO over episodes, and once more over steps taken in the same state.

A group's episodes start in one state and often meet again: every step that was taken
in the same *anchor state* is compared with the others by what came after it, which
credits single actions without a critic and without extra rollouts. Two decisions:

* a step group never leaves its group of episodes, so two tasks whose observations
  happen to read alike are never compared;
* mean and deviation of the episode part are taken over episodes, as in the paper. The
  reference code takes them over steps, which lets long episodes count more; that form
  is `statistics="row"`.

Shapes: G episodes of the group, N steps of all of them, K distinct anchor states.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_weight
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    IntArray,
    Statistics,
    check_group,
    check_one_per_step,
    joined_penalties,
    two_part_credit,
)
from longhaul_core.advantages.grpo import EPSILON, episode_part
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.similarity import merge_similar


def gigpo_credit(  # noqa: PLR0913  what an estimator reads
    step_rewards: Sequence[FloatArray],
    anchor_states: Sequence[Sequence[str]],
    *,
    discount: float,
    step_advantage_weight: float = 1.0,
    scale_by_std: bool = True,
    statistics: Statistics = "episode",
    similarity: float | None = None,
    action_penalties: Sequence[FloatArray] = (),
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one group of attempts at one task.

        A_{i,t} = A^E_i + step_advantage_weight * A^S_{i,t}

    `A^E` is GRPO's, from the undiscounted return. `A^S` is the same formula over all
    steps of the group that share an anchor state, from their discounted return-to-go:
    `(R_{i,t} - mean) / (std + 1e-6)`. With `action_penalties` both are of returns less the step's
    own penalty, so that the step's advantage falls and those of the steps before it do not.

    Args:
        step_rewards: Rewards of each episode's steps, for the group's episodes that did
            not fail, in the environment's units.
        anchor_states: For each step the state it was taken in; equal strings are one state.
        discount: Per step, in [0, 1]. Below 1, an action nearer to success is worth more.
        step_advantage_weight: The paper's omega, at least 0; 0 leaves GRPO.
        scale_by_std: Divide both parts by their sample standard deviation; False divides
            neither.
        statistics: What mean and deviation of `A^E` are taken over; see `Statistics`.
        similarity: Anchor states at least this alike, in (0, 1), are one state, as
            `merge_similar` joins them; None compares for equality, by hash.
        action_penalties: For each step what it alone is lowered by, in the environment's units;
            empty for nothing. See `episode_part`.

    Returns:
        One credit per episode, in the order given. A step whose state nobody else met
        has `A^S = 0`.

    Raises:
        GroupError: If there are fewer than 2 episodes.
        ValueError: If anchors and rewards differ in number, a reward is not finite, an
            episode is empty, `discount`, `step_advantage_weight` or `similarity` is out of
            range, or `statistics` is no `Statistics`.

    Source:
        Feng et al. 2025, Group-in-Group Policy Optimization, arXiv:2505.10978, eq. 3 to 8.
    """
    check_group(step_rewards)
    check_one_per_step(step_rewards, anchor_states, of="anchor state")
    check_weight(step_advantage_weight, name="step_advantage_weight")
    penalties_N = joined_penalties(action_penalties, step_rewards)
    to_go = returns_to_go(step_rewards, discount=discount)
    returns_N = np.concatenate(to_go)
    if penalties_N is not None:
        returns_N = returns_N - penalties_N
    anchors = [state for states in anchor_states for state in states]
    if similarity is not None:
        anchors = merge_similar(anchors, threshold=similarity)
    return two_part_credit(
        episode_part(step_rewards, penalties_N, scale_by_std=scale_by_std, statistics=statistics),
        step_advantages(returns_N, number_by_first(anchors), scale_by_std=scale_by_std),
        to_go,
        step_weight=step_advantage_weight,
    )


def number_by_first(keys: Sequence[Hashable]) -> IntArray:
    """Numbers from 0 on, the same for equal keys, in the order in which keys first appear."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def step_advantages(
    returns_N: FloatArray, group_N: IntArray, *, scale_by_std: bool, ddof: int = 1
) -> FloatArray:
    """How much better each step's future was than that of its step group, shape (N,).

    Sums to zero over each step group; exactly zero where a group's returns are equal
    or a step is alone.

    Args:
        returns_N: Return-to-go of each step.
        group_N: The step group of each step, numbered from 0 to K - 1 without gaps.
        scale_by_std: Divide by the group's standard deviation + 1e-6.
        ddof: Subtracted from the group's size in that deviation; 1 for the sample's.
    """
    size_K = np.bincount(group_N)
    # Measured from one member, equal returns are exactly 0 whatever their rounding.
    _, first_K = np.unique(group_N, return_index=True)
    offsets_N = returns_N - returns_N[first_K][group_N]
    centered_N = offsets_N - (np.bincount(group_N, weights=offsets_N) / size_K)[group_N]
    if not scale_by_std:
        return centered_N
    squares_K = np.bincount(group_N, weights=centered_N**2)
    std_K = np.sqrt(squares_K / np.maximum(size_K - ddof, 1))
    return centered_N / (std_K + EPSILON)[group_N]
