"""GAE as an estimator: a critic's values in, whitened advantages and value targets out.

Shapes: N steps of all episodes, M action tokens of all of them.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from longhaul_core.advantages.arguments import check_choice
from longhaul_core.advantages.credit import EpisodeCredit, FloatArray, split_by_episode
from longhaul_core.advantages.estimator import Estimator, Group, GroupCredit, Whitened, by_group
from longhaul_core.advantages.gae import gae_over_steps, gae_over_tokens
from longhaul_core.advantages.returns import returns_to_go
from longhaul_core.advantages.whiten import Whiten, step_counts, whitened

GaeLevel = Literal["step", "token"]
"""What has a value and an advantage of its own.

`"step"`: an action, whose value is read before its first token.
`"token"`: each token of an action; discount and decay apply once a step all the same.
"""


def gae_credit(  # noqa: PLR0913 - what it takes of a training step
    step_rewards: Sequence[FloatArray],
    token_values: Sequence[Sequence[FloatArray]],
    final_values: Sequence[float | None],
    *,
    level: GaeLevel,
    discount: float,
    gae_lambda: float,
    whiten: Whiten = "token",
    num_action_tokens: Sequence[Sequence[int]] | None = None,
) -> tuple[EpisodeCredit, ...]:
    r"""Credit of each episode of one training step, whatever its tasks.

        A = (A' - mean) / sqrt(variance + 1e-8)

    with A' of `gae_over_steps` or `gae_over_tokens`, and mean and variance over all the training
    step's actions; see `whiten`. Value targets are not whitened: they are what A' aims at.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units.
        token_values: For each episode and step, the critic's value before each token of the
            action, in the environment's units; at least one. By `"step"` only the first is read.
        final_values: For each episode None if it terminated, or the value of its last
            observation's prompt if it was truncated.
        level: See `GaeLevel`.
        discount: Per step, in [0, 1].
        gae_lambda: Lambda, per step, in [0, 1].
        whiten: What counts the same in mean and variance; see `Whiten`.
        num_action_tokens: For each episode and step, how many of its tokens count there: as many
            as it has values, which None stands for, or 0 for a step that is not trained.

    Returns:
        One credit per episode, in the order given, with a step part alone. By `"token"` it has
        an advantage for each token, and for each step their mean.

    Raises:
        ValueError: As `gae_over_steps`, or if a step has no value, or `level` or `whiten` is none
            of theirs.

    Source:
        Schulman et al. 2015, arXiv:1506.02438. Whitening is PPO's practice (arXiv:2006.05990,
        section 3.2), and is over the training step as in REINFORCE++.
    """
    check_choice(level, GaeLevel, name="level")
    if any(len(values_T) == 0 for episode in token_values for values_T in episode):
        raise ValueError("every step needs a value for each token of its action, at least one")
    to_go = returns_to_go(step_rewards, discount=discount)
    num_values = [[len(values_T) for values_T in episode] for episode in token_values]
    num_steps = [len(episode) for episode in token_values]
    counts_N = step_counts(num_action_tokens or num_values, whiten=whiten)
    if level == "step":
        by_step = gae_over_steps(
            step_rewards,
            [np.array([values_T[0] for values_T in episode]) for episode in token_values],
            final_values,
            discount=discount,
            gae_lambda=gae_lambda,
        )
        advantages_N = whitened(np.concatenate([c.advantages for c in by_step]), counts_N)
        return tuple(
            _credit(steps, rewards_to_go, targets=credit.value_targets)
            for steps, rewards_to_go, credit in zip(
                split_by_episode(advantages_N, num_steps), to_go, by_step, strict=True
            )
        )
    by_token = gae_over_tokens(
        step_rewards, token_values, final_values, discount=discount, gae_lambda=gae_lambda
    )
    lengths_N = np.array([count for episode in num_values for count in episode])
    counts_M = np.repeat(counts_N / lengths_N, lengths_N)  # a step's count is shared by its tokens
    advantages_M = whitened(
        np.concatenate([a for credit in by_token for a in credit.advantages]), counts_M
    )
    tokens = iter(np.split(advantages_M, np.cumsum(lengths_N)[:-1]))
    found: list[EpisodeCredit] = []
    for credit, rewards_to_go in zip(by_token, to_go, strict=True):
        of_episode = [next(tokens) for _ in credit.advantages]
        found.append(
            _credit(
                tuple(float(tokens_T.mean()) for tokens_T in of_episode),
                rewards_to_go,
                targets=np.array([targets_T[0] for targets_T in credit.value_targets]),
                token_advantages=tuple(tuple(tokens_T.tolist()) for tokens_T in of_episode),
            )
        )
    return tuple(found)


def _credit(
    steps: tuple[float, ...],
    rewards_to_go: FloatArray,
    *,
    targets: FloatArray,
    token_advantages: tuple[tuple[float, ...], ...] | None = None,
) -> EpisodeCredit:
    return EpisodeCredit(
        episode_advantage=0.0,
        step_advantages=steps,
        returns_to_go=tuple(rewards_to_go.tolist()),
        advantages=steps,
        token_advantages=token_advantages,
        value_targets=tuple(targets.tolist()),
    )


class GaeSettings(Whitened):
    """What GAE reads."""

    gae_level: GaeLevel = "step"
    """Values and advantages of whole actions, or of each of their tokens. `discount` and
    `gae_lambda` apply once per environment step in both."""
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda, per environment step: 0 relies on the critic after one step, 1 only where an episode
    is truncated."""


def _gae(groups: Sequence[Group], settings: GaeSettings) -> list[GroupCredit]:
    credits = gae_credit(
        [rewards for group in groups for rewards in group.step_rewards],
        [values for group in groups for values in group.token_values or ()],
        [value for group in groups for value in group.final_values or ()],
        level=settings.gae_level,
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        whiten=settings.whiten,
        num_action_tokens=[tokens for group in groups for tokens in group.num_action_tokens],
    )
    return by_group(credits, groups)


ESTIMATORS = {
    "gae": Estimator(
        compute=_gae,
        compares_training_step=True,
        summary="GAE: the values of a critic that is trained too (PPO)",
        settings=GaeSettings,
        compares_episodes=False,
        needs_critic=True,
    ),
}
