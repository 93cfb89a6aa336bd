"""What an advantage function returns for one episode, and the checks they share.

The episode part and the step part are kept apart, because they are stored apart:
a person who asks why an action was reinforced wants to see which of the two did it.
An estimator that gives every step of an episode the same has an episode part alone; one
that tells the steps apart and nothing else has a step part alone.

Shapes: G episodes of the group, N steps of all of them, one after the other.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from longhaul_core.advantages.arguments import LARGEST, check_numbers
from longhaul_core.errors import GroupError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Statistics = Literal["episode", "row"]
"""What a group's mean and standard deviation are taken over.

`"episode"`: every episode counts once, as in the papers. `"row"`: every step counts
once, so an episode counts as often as it is long; verl-agent computes it so, and
matching its published numbers needs it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCredit:
    """Credit of one episode. The tuples hold one number per step."""

    episode_advantage: float
    """A^E: how the whole episode did against what it is compared with."""
    step_advantages: tuple[float, ...]
    """A^S: how the rest of the episode went from each step on against other steps."""
    returns_to_go: tuple[float, ...]
    """Discounted sum of the rewards from each step on, in the environment's units."""
    advantages: tuple[float, ...]
    """What the loss uses: both parts, combined, less the penalty of an action that is invalid;
    where tokens have their own, their mean."""
    token_advantages: tuple[tuple[float, ...], ...] | None = None
    """What the loss uses of each token of each step's action; None where all have the step's."""
    value_targets: tuple[float, ...] | None = None
    """Lambda-return of each step, in the environment's units; None without a critic."""


class EpisodePart(NamedTuple):
    """A^E of a group."""

    episodes_G: FloatArray
    """Of each episode, without the penalties of its invalid actions."""
    steps_N: FloatArray
    """The same for each step, less the step's own penalty."""


def check_group(step_rewards: Sequence[FloatArray]) -> None:
    """Refuse a group that carries no comparison, or rewards that are no numbers.

    Args:
        step_rewards: Rewards of each episode's steps.

    Raises:
        GroupError: If there are fewer than 2 episodes. One episode is its own mean, and
            an advantage of 0 would hide that the group taught nothing.
        ValueError: If an episode has no steps, or a reward is not finite.
    """
    if len(step_rewards) < 2:
        raise GroupError(
            f"a group needs at least 2 trajectories to compare, got {len(step_rewards)}"
        )
    check_rewards(step_rewards)


def check_rewards(step_rewards: Sequence[FloatArray]) -> None:
    """Refuse episodes without steps and rewards that are no numbers.

    Raises:
        ValueError: If an episode has no steps, or a reward is not finite or larger than `LARGEST`
            in size.
    """
    for position, rewards in enumerate(step_rewards):
        if rewards.ndim != 1 or len(rewards) == 0:
            raise ValueError(
                f"rewards of episode {position} must have one axis and at least one step, "
                f"got shape {rewards.shape}"
            )
        check_finite_rewards(rewards, position)


def check_finite_rewards(rewards: FloatArray, position: int) -> None:
    """Refuse rewards that are no numbers, or whose sums and squares would be none.

    Args:
        rewards: Of one episode's steps.
        position: Of the episode, for the message.

    Raises:
        ValueError: If a reward is not finite, or larger than `LARGEST` in size.
    """
    for step in np.flatnonzero(~(np.abs(rewards) <= LARGEST)):
        check_numbers(rewards[step], name=f"reward of episode {position}, step {step}")


def check_one_per_step(
    step_rewards: Sequence[FloatArray], values: Sequence[Sized], *, of: str
) -> None:
    """Refuse values that are not one for each step.

    Args:
        step_rewards: Rewards of each episode's steps.
        values: For each episode, as many values as it has steps.
        of: What the values are, in the singular, for the message.

    Raises:
        ValueError: If the numbers differ.
    """
    num_steps = [len(rewards) for rewards in step_rewards]
    found = [len(episode) for episode in values]
    if found != num_steps:
        raise ValueError(
            f"one {of} per step is required: episodes have {num_steps} rewards but {found} {of}s"
        )


def whole_episode_credit(
    advantages_G: FloatArray, returns_to_go: Sequence[FloatArray]
) -> tuple[EpisodeCredit, ...]:
    """Credit of estimators that give every step of an episode the same.

    Args:
        advantages_G: Advantage of each episode.
        returns_to_go: Of each episode's steps, for the record.
    """
    return tuple(
        EpisodeCredit(
            episode_advantage=advantage,
            step_advantages=(0.0,) * len(to_go),
            returns_to_go=tuple(to_go.tolist()),
            advantages=(advantage,) * len(to_go),
        )
        for advantage, to_go in zip(advantages_G.tolist(), returns_to_go, strict=True)
    )


def step_credit(
    steps_N: FloatArray, returns_to_go: Sequence[FloatArray]
) -> tuple[EpisodeCredit, ...]:
    """Credit of estimators that have no episode part.

    Args:
        steps_N: Advantage of each step of all the episodes.
        returns_to_go: Of each episode's steps, for the record.
    """
    steps = split_by_episode(steps_N, [len(to_go) for to_go in returns_to_go])
    return tuple(
        EpisodeCredit(
            episode_advantage=0.0,
            step_advantages=advantages,
            returns_to_go=tuple(to_go.tolist()),
            advantages=advantages,
        )
        for advantages, to_go in zip(steps, returns_to_go, strict=True)
    )


def two_part_credit(
    episodes: EpisodePart,
    steps_N: FloatArray,
    returns_to_go: Sequence[FloatArray],
    *,
    step_weight: float,
    episode_weight: float = 1.0,
) -> tuple[EpisodeCredit, ...]:
    """Credit of estimators that have an episode part and a step part.

    Args:
        episodes: Episode part.
        steps_N: Step part of each step of all the episodes.
        returns_to_go: Of each episode's steps, for the record.
        step_weight: Of the step part in the advantage.
        episode_weight: Of the episode part in the advantage.
    """
    num_steps = [len(to_go) for to_go in returns_to_go]
    combined_N = episode_weight * episodes.steps_N + step_weight * steps_N
    return tuple(
        EpisodeCredit(
            episode_advantage=episode,
            step_advantages=steps,
            returns_to_go=tuple(to_go.tolist()),
            advantages=both,
        )
        for episode, steps, to_go, both in zip(
            episodes.episodes_G.tolist(),
            split_by_episode(steps_N, num_steps),
            returns_to_go,
            split_by_episode(combined_N, num_steps),
            strict=True,
        )
    )


def joined_penalties(
    action_penalties: Sequence[FloatArray], step_rewards: Sequence[FloatArray]
) -> FloatArray | None:
    """What each step of all the episodes is lowered by on its own, shape (N,).

    Args:
        action_penalties: Of each episode's steps, in the environment's units; empty for none.
        step_rewards: Rewards of each episode's steps.

    Returns:
        None where nothing is taken off.

    Raises:
        ValueError: If penalties and rewards differ in number, or a penalty is not finite.
    """
    if not any(np.any(penalties) for penalties in action_penalties):
        return None
    check_one_per_step(step_rewards, action_penalties, of="penalty")
    penalties_N = np.concatenate(action_penalties)
    check_numbers(penalties_N, name="penalty")
    return penalties_N


def split_by_episode(values_N: FloatArray, num_steps: Sequence[int]) -> list[tuple[float, ...]]:
    """Cut one number per step into one tuple per episode."""
    values = values_N.tolist()
    bounds = [0, *np.cumsum(num_steps).tolist()]
    return [tuple(values[start:stop]) for start, stop in pairwise(bounds)]
