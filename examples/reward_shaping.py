"""Reward shaping of one's own: `algorithm.reward_shaping = "reward_shaping:shorter_is_better"`."""

from longhaul_core.types import Trajectory

PRICE = 0.01
"""What each step costs."""


def shorter_is_better(episode: Trajectory) -> list[float]:
    """The environment's rewards less the price of each step; giving up costs as much as a horizon.

    Args:
        episode: One that ended, with its steps, `stop_reason` and `success`.

    Returns:
        One reward per step.
    """
    rewards = [step.reward - PRICE for step in episode.steps]
    if episode.stop_reason.terminated and not episode.success:
        rewards[-1] -= PRICE * (episode.horizon - len(episode.steps))
    return rewards
