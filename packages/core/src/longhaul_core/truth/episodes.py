"""Episodes of a policy that reads the state alone, as estimators read them, and their truth.

Shapes: S steps of an episode.
"""

from collections.abc import Sequence
from random import Random

import numpy as np

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.errors import ConfigError
from longhaul_core.truth.exact import ExactValues, Policy
from longhaul_core.truth.state_graph import ENDED, INVALID, World
from longhaul_core.types import Observation, Picture, Step, StopReason, Task, Trajectory

__all__ = ["estimated_advantages", "group_of", "play_episode", "true_advantages"]


def play_episode(
    world: World,
    task: Task,
    policy: Policy,
    *,
    horizon: int,
    seed: int,
    sample_index: int = 0,
    greedy: bool = False,
) -> Trajectory:
    """One episode, without a model: its steps have no calls, and its times are 0.

    Args:
        world: Played in.
        task: What.
        policy: Its actions are drawn.
        horizon: Longest episode, in steps.
        seed: Of the draws.
        sample_index: Place in its group.
        greedy: Take the likeliest action, the first of equals.
    """
    draw = Random(seed)
    seen, steps = world.start(task), list[Step]()
    stop, success = StopReason.HORIZON_REACHED, False
    while len(steps) < horizon:
        shares = policy(seen)
        if greedy:
            action = max(shares, key=lambda one: shares[one])
        else:
            (action,) = draw.choices(list(shares), weights=list(shares.values()))
        result = world.act(action)
        steps.append(
            Step(
                index=len(steps),
                observation=seen,
                calls=(),
                action=action,
                action_valid=action != INVALID,
                reward=result.reward,
            )
        )
        seen, success = result.observation, result.success
        if result.terminated:
            stop = StopReason.TASK_SOLVED if success else StopReason.TASK_FAILED
            break
        if result.truncated:
            stop = StopReason.ENVIRONMENT_LIMIT
            break
    return Trajectory(
        task=task,
        sample_index=sample_index,
        seed=seed,
        horizon=horizon,
        steps=tuple(steps),
        stop_reason=stop,
        success=success,
        final_observation=seen,
        started_at=0.0,
        duration_seconds=0.0,
    )


def group_of(
    name: str,
    episodes: Sequence[Trajectory],
    *,
    greedy: Trajectory | None = None,
    values: Sequence[FloatArray] | None = None,
) -> Group:
    """What estimators read of a group whose replies have one token each, without penalties.

    Args:
        name: Of the group.
        episodes: At least one.
        greedy: The greedy episode beside them, for ReMax.
        values: A critic's value of each step of each episode, for GAE; a truncated episode's last
            observation then counts 0, since no reward follows it.
    """
    return Group(
        name=name,
        step_rewards=[_rewards(episode) for episode in episodes],
        anchor_states=[[step.observation.anchor for step in each.steps] for each in episodes],
        final_states=[None if one.success else one.final_observation.anchor for one in episodes],
        num_action_tokens=[[1] * len(episode.steps) for episode in episodes],
        greedy_rewards=None if greedy is None else _rewards(greedy),
        token_values=None if values is None else [list(of[:, np.newaxis]) for of in values],
        final_values=None
        if values is None
        else [None if episode.stop_reason.terminated else 0.0 for episode in episodes],
    )


def estimated_advantages(
    groups: Sequence[Group], settings: EstimatorSettings
) -> list[list[FloatArray]]:
    """What an estimator gives each step of each episode of the groups of one training step.

    Args:
        groups: At least one.
        settings: With the estimator's name.

    Raises:
        ConfigError: There is no such estimator, or the groups lack the greedy episode or the
            critic's values that it needs.
    """
    if settings.name not in ESTIMATORS:
        raise ConfigError(
            f"there is no estimator {settings.name!r}; there are {', '.join(ESTIMATORS)}"
        )
    estimator = ESTIMATORS[settings.name]
    for group in groups:
        if estimator.needs_critic and group.token_values is None:
            raise ConfigError(
                f"{settings.name} needs a critic's values, and group {group.name!r} has none"
            )
        if estimator.needs_greedy_episode and group.greedy_rewards is None:
            raise ConfigError(
                f"{settings.name} needs a greedy episode, and group {group.name!r} has none"
            )
    credits = estimator.compute(groups, settings)
    return [[np.array(one.advantages) for one in of_group] for of_group in credits]


def true_advantages(values: ExactValues, episode: Trajectory) -> FloatArray:
    """A = Q - V of each step of an episode of the values' policy, shape (S,).

    Words that are no admissible action count as `INVALID`. Of the last observation the text and the
    pictures count: a store has no more of it.

    Raises:
        ConfigError: The episode is not of this task, or saw or was paid something else than the
            graph says; names the step.
    """
    graph = values.graph
    if episode.task.key != graph.task.key:
        raise ConfigError(
            f"the values are of task {graph.task.key}, and the episode is of {episode.task.key}"
        )
    following = [*(step.observation for step in episode.steps[1:]), episode.final_observation]
    found: list[float] = []
    for step, after in zip(episode.steps, following, strict=True):
        known = step.action in (step.observation.admissible_actions or ())
        action = step.action if known else INVALID
        edge = graph.edge(step.observation, action)
        target, reward = int(graph.targets_E[edge]), float(graph.rewards_E[edge])
        last = step.index == len(episode.steps) - 1
        ends = last and episode.stop_reason.terminated
        expected = after if target == ENDED else graph.states[target]
        differs = _shown(expected) != _shown(after) if last else expected != after
        if reward != step.reward or differs or ends != (target == ENDED):
            raise ConfigError(
                f"step {step.index} of an episode of task {episode.task.task_id!r} differs from "
                f"the graph: {action!r} was paid {step.reward:g} and led to {after.text!r}, and "
                f"the graph has {reward:g} and "
                f"{'an end' if target == ENDED else repr(expected.text)}; explore the task under "
                "the rules that the episode had"
            )
        found.append(
            values.advantage(step.observation, action, steps_left=episode.horizon - step.index)
        )
    return np.array(found)


def _shown(observation: Observation) -> tuple[str, tuple[Picture, ...]]:
    return observation.text, observation.pictures


def _rewards(episode: Trajectory) -> FloatArray:
    return np.array([step.reward for step in episode.steps], dtype=np.float64)
