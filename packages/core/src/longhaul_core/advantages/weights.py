"""Loss weights: how much each token counts in one optimizer step.

The loss of an optimizer step is `sum over tokens of weight * token loss`, and the
weights are fixed from the episodes alone: cutting an episode into rows, merging rows,
padding or micro-batching cannot change the gradient.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from longhaul_core.advantages.arguments import check_choice

LossUnit = Literal["token", "step", "episode", "fixed_token"]
"""What counts the same as every other of its kind.

`"token"`: each action token; long actions and long episodes count more.
`"step"`: each step, whatever the length of its action; long episodes count more.
`"episode"`: each episode, whatever its length; inside it each token counts the same, as
if the episode were one long reply.
`"fixed_token"`: each action token, and as much in every optimizer step whatever the lengths
of its episodes, which Dr.GRPO asks for.
"""


def loss_weights(
    num_action_tokens: Sequence[Sequence[int]],
    *,
    loss_unit: LossUnit,
    tokens_per_episode: int | None = None,
) -> tuple[tuple[float, ...], ...]:
    r"""Weight of each action token, one number per step since a step's tokens share it.

    With N episodes, T_i steps in episode i and n_{i,t} action tokens in its step t:

        token:        1 / sum_{i,t} n_{i,t}
        step:         1 / (sum_i T_i * n_{i,t})
        episode:      1 / (N * sum_t n_{i,t})
        fixed_token:  1 / (N * tokens_per_episode)

    A step without trained tokens (n = 0) has weight 0 and is not counted in T_i, nor an
    episode of such steps in N, so the weights of all tokens add up to 1; by `fixed_token`
    to the episodes' mean length over `tokens_per_episode`.

    Args:
        num_action_tokens: For each episode of one optimizer step, the trained tokens of
            each of its steps.
        loss_unit: See `LossUnit`.
        tokens_per_episode: For `fixed_token` alone: the constant that stands for an
            episode's length, at least 1, such as the most tokens that one can have. It
            scales the loss and must not change during a run.

    Returns:
        For each episode, the weight of one token of each of its steps.

    Raises:
        ValueError: If a count is negative, there are no tokens at all, or
            `tokens_per_episode` is missing, less than 1, or given for another unit, or
            `loss_unit` is no `LossUnit`.
    """
    check_choice(loss_unit, LossUnit, name="loss_unit")
    lowest = min((count for counts in num_action_tokens for count in counts), default=0)
    if lowest < 0:
        raise ValueError(f"number of action tokens must not be negative, got {lowest}")
    if (loss_unit == "fixed_token") != (tokens_per_episode is not None):
        raise ValueError(
            f"tokens_per_episode belongs to loss_unit = 'fixed_token' alone, which needs it: "
            f"got {tokens_per_episode} with {loss_unit!r}"
        )
    if tokens_per_episode is not None and tokens_per_episode < 1:
        raise ValueError(f"tokens_per_episode must be at least 1, got {tokens_per_episode}")
    num_tokens = sum(sum(counts) for counts in num_action_tokens)
    if num_tokens == 0:
        raise ValueError("loss weights need at least one action token, got none")

    if loss_unit == "token":
        divisors = [[num_tokens] * len(counts) for counts in num_action_tokens]
    elif loss_unit == "step":
        num_steps = sum(count > 0 for counts in num_action_tokens for count in counts)
        divisors = [[num_steps * count for count in counts] for counts in num_action_tokens]
    else:
        num_episodes = sum(sum(counts) > 0 for counts in num_action_tokens)
        divisors = [
            [num_episodes * (tokens_per_episode or sum(counts))] * len(counts)
            for counts in num_action_tokens
        ]
    return tuple(
        tuple(
            1.0 / divisor if count else 0.0
            for count, divisor in zip(counts, episode_divisors, strict=True)
        )
        for counts, episode_divisors in zip(num_action_tokens, divisors, strict=True)
    )


def loss_weights_by_purpose(
    num_action_tokens: Mapping[str, Sequence[Sequence[int]]],
    *,
    shares: Mapping[str, float],
    loss_unit: LossUnit,
) -> dict[str, tuple[tuple[float, ...], ...]]:
    r"""Weight of each action token where each purpose of calls has a share and a denominator.

    With w^p the `loss_weights` of the tokens of purpose p alone, s_p its share, and P the purposes
    that have tokens in this optimizer step:

        w^p * s_p / sum_{q in P} s_q

    So the weights of all tokens add up to 1, and those of a purpose to its share among the purposes
    that are there, however many tokens it has.

    Args:
        num_action_tokens: For each purpose, the trained tokens of each step of each episode of one
            optimizer step, as `loss_weights` takes them.
        shares: Of each of these purposes and maybe others; above 0.
        loss_unit: Any but `fixed_token`, whose denominator is no purpose's own.

    Returns:
        For each purpose and episode, the weight of one token of each of its steps; 0 where the
        purpose has none.

    Raises:
        ValueError: See `loss_weights`, for all purposes together; or a purpose has no share, or one
            that is not above 0.
    """
    if loss_unit == "fixed_token":
        raise ValueError("loss_unit = 'fixed_token' gives no purpose a denominator of its own")
    for purpose in num_action_tokens:
        share = shares.get(purpose)
        if share is None or not share > 0:
            raise ValueError(f"the share of purpose {purpose!r} must be above 0, got {share}")
    there = {
        purpose: counts
        for purpose, counts in num_action_tokens.items()
        if any(any(of_episode) for of_episode in counts)
    }
    if not there:
        raise ValueError("loss weights need at least one action token, got none")
    whole = sum(shares[purpose] for purpose in there)
    found = {
        purpose: tuple((0.0,) * len(of_episode) for of_episode in counts)
        for purpose, counts in num_action_tokens.items()
    }
    for purpose, counts in there.items():
        part = shares[purpose] / whole
        found[purpose] = tuple(
            tuple(part * weight for weight in of_episode)
            for of_episode in loss_weights(counts, loss_unit=loss_unit)
        )
    return found
