"""Penalties: what is taken off the rewards of an episode, or off the rows of its invalid actions.

Shapes: S steps of one episode.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel

from longhaul_core.advantages.credit import FloatArray

__all__ = ["Penalties", "PenaltyOn", "action_penalties", "overlong_share", "penalised_rewards"]

PenaltyOn = Literal["action", "return"]
"""What the penalty of an invalid action lowers.

`"action"`: what this one step is compared with others by, after returns are taken, as in
verl-agent and in GraphGPO's released code. `"return"`: the step's reward, and with it the return
of the whole episode and of the steps before it.
"""


class Penalties(BaseModel):
    """The settings of `[algorithm]` of these names; the configuration describes and bounds them."""

    model_config = {"frozen": True, "from_attributes": True}

    invalid_action_penalty: float
    invalid_action_penalty_on: PenaltyOn = "return"
    """Runs that were stored before there was a choice have no such setting."""
    overlong_penalty: float
    overlong_start_tokens: int | None
    overlong_end_tokens: int | None
    overlong_unit: Literal["step", "episode"]


def penalised_rewards(
    rewards: Sequence[float],
    action_valid: Sequence[bool],
    num_action_tokens: Sequence[int],
    penalties: Penalties,
) -> FloatArray:
    """The rewards of one episode less the penalties that lower returns, shape `[S]`.

        r_t − overlong_penalty · overlong share
            − invalid_action_penalty · [the action is invalid], if it is on the return

    Args:
        rewards: Of each step.
        action_valid: Whether each step's action was valid.
        num_action_tokens: Tokens of each step's trained calls together.
        penalties: What is taken off.
    """
    found = np.array(rewards, dtype=np.float64)
    if penalties.invalid_action_penalty_on == "return":
        found -= _of_invalid_actions(action_valid, penalties)
    found -= penalties.overlong_penalty * _overlong_shares(num_action_tokens, penalties)
    return found


def action_penalties(action_valid: Sequence[bool], penalties: Penalties) -> FloatArray:
    """What each step of one episode is lowered by on its own, shape `[S]`.

        invalid_action_penalty · [the action is invalid], if it is on the action

    Args:
        action_valid: Whether each step's action was valid.
        penalties: What is taken off.
    """
    if penalties.invalid_action_penalty_on == "return":
        return np.zeros(len(action_valid))
    return _of_invalid_actions(action_valid, penalties)


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


def _of_invalid_actions(action_valid: Sequence[bool], penalties: Penalties) -> FloatArray:
    return penalties.invalid_action_penalty * np.array([not valid for valid in action_valid])


def _overlong_shares(num_tokens: Sequence[int], penalties: Penalties) -> FloatArray:
    """Shape `[S]`; of an episode measured as a whole, the last step's alone is not 0."""
    shares = np.zeros(len(num_tokens))
    start, end = penalties.overlong_start_tokens, penalties.overlong_end_tokens
    if start is None or end is None or not num_tokens:
        return shares
    if penalties.overlong_unit == "episode":
        shares[-1] = overlong_share(sum(num_tokens), start=start, end=end)
    else:
        shares[:] = [overlong_share(number, start=start, end=end) for number in num_tokens]
    return shares
