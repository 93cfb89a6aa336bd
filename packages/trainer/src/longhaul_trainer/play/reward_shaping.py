"""The reward-shaping hook: a function of the user's that returns the rewards for credit.

The function is given an episode that ended, as the frozen `Trajectory` that the store keeps
of it, and returns one reward for each of its steps. It must be pure: the same episode, the
same rewards. It is called once an episode, in the process that played it. The
store keeps both the environment's reward and the function's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from longhaul_core.components import find_component
from longhaul_core.environment import LARGEST_REWARD
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.types import Trajectory

__all__ = ["RewardShaping", "load_reward_shaping", "shaped_by"]

RewardShaping = Callable[[Trajectory], Sequence[float]]
"""One reward per step of an episode that ended, in step order."""

SETTING = "algorithm.reward_shaping"


def load_reward_shaping(name: str) -> RewardShaping:
    """The function behind `package.module:function`.

    Raises:
        ConfigError: If the module cannot be imported, has no such function, or the function
            does not take one episode.
    """
    built_in: Mapping[str, RewardShaping] = {}
    return find_component(name, built_in, setting=SETTING, takes=("episode",))


def shaped_by(function: RewardShaping, episode: Trajectory, *, name: str) -> tuple[float, ...]:
    """What `function` gives the steps of `episode`: one reward each.

    Args:
        function: The user's.
        episode: One that ended.
        name: Of the function, for the message.

    Raises:
        ConfigError: If the function raises, or gives another number of rewards, or one that
            is no number within `LARGEST_REWARD`. The message names the function and the episode.
    """
    where = f"{SETTING} = {name!r}, task {episode.task.task_id!r}, place {episode.sample_index}"
    try:
        with attributed_to(EnvironmentFailure, where):
            rewards = tuple(float(reward) for reward in function(episode))
    except EnvironmentFailure as error:
        raise ConfigError(str(error)) from error
    if len(rewards) != len(episode.steps):
        raise ConfigError(
            f"{where}: gave {len(rewards)} rewards for an episode of {len(episode.steps)} steps; "
            "each step needs one"
        )
    for step, reward in enumerate(rewards):
        if not abs(reward) <= LARGEST_REWARD:  # nor is what is no number
            raise ConfigError(
                f"{where}: the reward of step {step} must be finite, at most {LARGEST_REWARD:g} in "
                f"size, got {reward}"
            )
    return rewards
