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

from collections.abc import Sequence

import numpy as np

from longhaul_core.advantages.arguments import check_weight
from longhaul_core.advantages.comparisons import episode_part, number_by_first, step_advantages
from longhaul_core.advantages.credit import (
    EpisodeCredit,
    FloatArray,
    Statistics,
    check_group,
    check_one_per_step,
    joined_penalties,
    two_part_credit,
)
from longhaul_core.advantages.estimator import (
    Anchored,
    Estimator,
    Group,
    GroupCredit,
    PerAgent,
    Scaled,
    WithStatistics,
    per_group,
)
from longhaul_core.advantages.per_agent import gigpo_per_agent_credit
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


class GigpoSettings(Scaled, WithStatistics, PerAgent, Anchored):
    """What GiGPO reads."""


def _gigpo(group: Group, settings: GigpoSettings) -> GroupCredit:
    if settings.baseline_per_agent:
        return gigpo_per_agent_credit(
            group.step_rewards,
            group.anchor_states,
            group.agents,
            discount=settings.discount,
            step_advantage_weight=settings.step_advantage_weight,
            scale_by_std=settings.scale_by_std,
            statistics=settings.statistics,
            similarity=settings.anchor_similarity,
        )
    return gigpo_credit(
        group.step_rewards,
        group.anchor_states,
        discount=settings.discount,
        step_advantage_weight=settings.step_advantage_weight,
        scale_by_std=settings.scale_by_std,
        statistics=settings.statistics,
        similarity=settings.anchor_similarity,
        action_penalties=group.action_penalties,
    )


ESTIMATORS = {
    "gigpo": Estimator(
        compute=per_group(_gigpo),
        summary="GiGPO: the episodes of the group, and the group's steps from the same state",
        settings=GigpoSettings,
        penalises_actions=True,
    ),
}
