"""Loss weights: how much each token counts in one optimizer step.

The loss of an optimizer step is `sum over tokens of weight * token loss`, and the
weights are fixed from the episodes alone: cutting an episode into rows, merging rows,
padding or micro-batching cannot change the gradient.
"""

from collections.abc import Sequence
from typing import Literal

LossUnit = Literal["token", "step", "episode"]
"""What counts the same as every other of its kind.

`"token"`: each action token; long actions and long episodes count more.
`"step"`: each step, whatever the length of its action; long episodes count more.
`"episode"`: each episode, whatever its length; inside it each token counts the same, as
if the episode were one long reply.
"""


def loss_weights(
    num_action_tokens: Sequence[Sequence[int]], *, loss_unit: LossUnit
) -> tuple[tuple[float, ...], ...]:
    r"""Weight of each action token, one number per step since a step's tokens share it.

    With N episodes, T_i steps in episode i and n_{i,t} action tokens in its step t:

        token:    1 / sum_{i,t} n_{i,t}
        step:     1 / (sum_i T_i * n_{i,t})
        episode:  1 / (N * sum_t n_{i,t})

    A step without trained tokens (n = 0) has weight 0 and is not counted in T_i, nor an
    episode of such steps in N, so the weights of all tokens add up to 1.

    Args:
        num_action_tokens: For each episode of one optimizer step, the trained tokens of
            each of its steps.
        loss_unit: See `LossUnit`.

    Returns:
        For each episode, the weight of one token of each of its steps.

    Raises:
        ValueError: If a count is negative or there are no tokens at all.
    """
    lowest = min((count for counts in num_action_tokens for count in counts), default=0)
    if lowest < 0:
        raise ValueError(f"number of action tokens must not be negative, got {lowest}")
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
        divisors = [[num_episodes * sum(counts)] * len(counts) for counts in num_action_tokens]
    return tuple(
        tuple(
            1.0 / divisor if count else 0.0
            for count, divisor in zip(counts, episode_divisors, strict=True)
        )
        for counts, episode_divisors in zip(num_action_tokens, divisors, strict=True)
    )
