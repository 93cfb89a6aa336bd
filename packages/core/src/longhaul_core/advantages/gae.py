"""GAE: advantages from a critic's values, over an episode's steps or over its tokens.

An episode is one chain, however it is cut into rows: what follows a step is the next step,
and not the end of its row. Where it ends, terminated is not truncated: nothing is to come
after a state in which the task ended, while an episode that a limit cut short would have
gone on, and the value of its last observation stands for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longhaul_core.advantages.arguments import check_fraction, check_numbers
from longhaul_core.advantages.credit import FloatArray, check_one_per_step, check_rewards


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCriticCredit:
    """What a critic's values say about one episode; one number per step."""

    advantages: FloatArray
    value_targets: FloatArray
    """Lambda-returns, which the critic regresses to: value plus advantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCriticCredit:
    """What a critic's values say about one episode; for each step, one number per token."""

    advantages: tuple[FloatArray, ...]
    value_targets: tuple[FloatArray, ...]
    """Lambda-returns of tokens, which the critic regresses to: value plus advantage."""


def gae_over_steps(
    step_rewards: Sequence[FloatArray],
    values: Sequence[FloatArray],
    final_values: Sequence[float | None],
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[StepCriticCredit, ...]:
    r"""Generalised advantages of actions, one per environment step.

        delta_t = r_t + discount * (1 - terminated_t) * V_{t+1} - V_t
        A_t = delta_t + discount * gae_lambda * (1 - done_t) * A_{t+1}

    done is terminated or truncated. `V_t` is the value of the step's prompt, read before
    the first token of its action; V after a truncated episode's last step is `final_values`.

    Advantages are not whitened; `whitened` does that, over a whole training step.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units; one
            episode is enough.
        values: For each episode the critic's value of each step's prompt, discounted per
            step, in the environment's units.
        final_values: For each episode None if it terminated, or the value of its last
            observation's prompt if it was truncated.
        discount: Per step, in [0, 1].
        gae_lambda: Lambda, per step, in [0, 1]; 0 trusts the critic after one step, 1
            only where an episode is truncated.

    Returns:
        One credit per episode, in the order given.

    Raises:
        ValueError: If the lengths differ, an episode is empty, a reward or value is not
            finite, or `discount` or `gae_lambda` is out of range.

    Source:
        Schulman et al. 2015, High-Dimensional Continuous Control Using Generalized
        Advantage Estimation, arXiv:1506.02438, eq. 11 to 16.
    """
    _check(step_rewards, values, final_values, discount=discount, gae_lambda=gae_lambda)
    credits: list[StepCriticCredit] = []
    for episode, (rewards, values_S) in enumerate(zip(step_rewards, values, strict=True)):
        check_numbers(values_S, name=f"values of episode {episode}")
        targets_S = _lambda_returns(
            rewards,
            values_S.tolist(),
            final_values[episode],
            discount=discount,
            gae_lambda=gae_lambda,
        )
        credits.append(StepCriticCredit(advantages=targets_S - values_S, value_targets=targets_S))
    return tuple(credits)


def gae_over_tokens(
    step_rewards: Sequence[FloatArray],
    token_values: Sequence[Sequence[FloatArray]],
    final_values: Sequence[float | None],
    *,
    discount: float,
    gae_lambda: float,
) -> tuple[TokenCriticCredit, ...]:
    r"""Generalised advantages of tokens, chained through the actions of an episode.

    GAE over the tokens of all the episode's actions, one after the other, with the reward
    of a step on the last token of its action. Inside an action nothing is discounted and
    nothing decays; from an action's last token to the next action's first, `discount` and
    `gae_lambda` apply once. Inside an action the sum telescopes, so for token k of step t

        A_{t,k} = Q_t - V_{t,k}
        Q_t = r_t + discount * ((1 - gae_lambda) * V_{t+1,0} + gae_lambda * Q_{t+1})

    with the value of the final observation (0 after a terminated episode) in the place of
    both after the last step. A
    step without tokens chooses nothing: it is passed through to the step before it.

    Args:
        step_rewards: Rewards of each episode's steps, in the environment's units; one
            episode is enough.
        token_values: For each episode and step, the critic's value before each token of
            the action.
        final_values: For each episode None if it terminated, or the value of its last
            observation's prompt if it was truncated.
        discount: Per step, in [0, 1].
        gae_lambda: Lambda, per step, in [0, 1].

    Returns:
        One credit per episode, in the order given.

    Raises:
        ValueError: If the lengths differ, an episode is empty, a reward or value is not
            finite, or `discount` or `gae_lambda` is out of range.

    Source:
        Schulman et al. 2015, arXiv:1506.02438, eq. 11 to 16; the unit of discount and
        decay, an environment step, is a choice: per token, credit would fade with the
        length of the replies between an action and its reward.
    """
    _check(step_rewards, token_values, final_values, discount=discount, gae_lambda=gae_lambda)
    credits: list[TokenCriticCredit] = []
    for episode, rewards in enumerate(step_rewards):
        values = token_values[episode]
        for values_T in values:
            check_numbers(values_T, name=f"values of episode {episode}")
        targets_S = _lambda_returns(
            rewards,
            [float(values_T[0]) if len(values_T) else None for values_T in values],
            final_values[episode],
            discount=discount,
            gae_lambda=gae_lambda,
        )
        targets = tuple(
            np.full(len(values_T), target)
            for target, values_T in zip(targets_S.tolist(), values, strict=True)
        )
        credits.append(
            TokenCriticCredit(
                advantages=tuple(
                    target_T - values_T for target_T, values_T in zip(targets, values, strict=True)
                ),
                value_targets=targets,
            )
        )
    return tuple(credits)


def _lambda_returns(
    rewards_S: FloatArray,
    first_values: Sequence[float | None],
    final_value: float | None,
    *,
    discount: float,
    gae_lambda: float,
) -> FloatArray:
    """The lambda-return of each step, shape (S,); a step without a value is passed through."""
    targets_S = np.empty(len(rewards_S))
    value = target = 0.0 if final_value is None else final_value
    for step in range(len(rewards_S) - 1, -1, -1):
        reward, first_value = float(rewards_S[step]), first_values[step]
        target = reward + discount * ((1.0 - gae_lambda) * value + gae_lambda * target)
        value = reward + discount * value if first_value is None else first_value
        targets_S[step] = target
    return targets_S


def _check(
    step_rewards: Sequence[FloatArray],
    values: Sequence[Sequence[FloatArray]] | Sequence[FloatArray],
    final_values: Sequence[float | None],
    *,
    discount: float,
    gae_lambda: float,
) -> None:
    check_rewards(step_rewards)
    check_one_per_step(step_rewards, values, of="value")
    if len(final_values) != len(step_rewards):
        raise ValueError(
            f"one final value per episode is required: got {len(step_rewards)} episodes "
            f"and {len(final_values)} final values"
        )
    check_fraction(discount, name="discount")
    check_fraction(gae_lambda, name="gae_lambda")
    for episode, value in enumerate(final_values):
        if value is not None:
            check_numbers(value, name=f"final value of episode {episode}")
