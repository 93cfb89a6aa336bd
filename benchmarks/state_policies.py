"""Episodes of policies that read the state alone, and values by continuations on a task's graph.

Shapes: N continuations.
"""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from longhaul_core.advantages.credit import FloatArray
from longhaul_core.advantages.estimators import ESTIMATORS, EstimatorSettings, Group
from longhaul_core.errors import ConfigError
from longhaul_core.evaluation import Interval, bounded_mean_interval
from longhaul_core.truth import INVALID, Policy, StateGraph, num_wanted
from longhaul_core.truth.state_graph import ENDED, World
from longhaul_core.types import Step, StopReason, Task, Trajectory

MOST_CONTINUATIONS = 4096
Draw = Callable[[int], FloatArray]
"""Plays so many further continuations; their discounted returns, shape (N,)."""


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


def _rewards(episode: Trajectory) -> FloatArray:
    return np.array([step.reward for step in episode.steps], dtype=np.float64)


def sampled_value(
    draw: Draw,
    *,
    half_width: float,
    first: int = 32,
    most: int = MOST_CONTINUATIONS,
) -> Interval:
    """The mean return of as many continuations as an interval of a given width needs.

    The interval is Wilson's of 95 %; see `bounded_mean_interval` and `num_wanted`.

    Args:
        draw: Plays further ones; their returns lie in [0, 1].
        half_width: Wanted; above 0.
        first: Continuations before the first look, at least 1.
        most: Continuations at most; the interval may then be wider than it was to be.

    Raises:
        ValueError: An argument is out of range, or a return lies outside [0, 1].
    """
    if not half_width > 0.0:
        raise ValueError(f"half_width must be above 0, got {half_width}")
    if not 1 <= first <= most:
        raise ValueError(f"first must be from 1 to most = {most}, got {first}")
    returns = draw(first)
    while True:
        found = bounded_mean_interval(returns.tolist())
        wanted = num_wanted(found, so_far=len(returns), half_width=half_width, most=most)
        if wanted == len(returns):
            return found
        returns = np.concatenate([returns, draw(wanted - len(returns))])


def continuations(
    graph: StateGraph,
    probabilities_E: FloatArray,
    *,
    state: int,
    steps_left: int,
    edge: int | None = None,
    discount: float,
    random: np.random.Generator,
) -> Draw:
    """Continuations from a state, drawn on its task's graph instead of in the environment.

    Args:
        graph: Of the task.
        probabilities_E: Of each edge's action in its state; see `tabulated`.
        state: Where they begin.
        steps_left: At least 1.
        edge: Taken first; None draws that one too.
        discount: Per step.
        random: A generator of these continuations' own.
    """
    bounds_S = np.searchsorted(graph.sources_E, np.arange(len(graph.states) + 1))
    cumulative_E = np.cumsum(probabilities_E)
    before_S = np.append(0.0, cumulative_E)[bounds_S]

    def draw(number: int) -> FloatArray:
        returns_N, weight = np.zeros(number), 1.0
        states_N = np.full(number, state)
        playing_N = np.arange(number)
        for step in range(steps_left):
            if step == 0 and edge is not None:
                edges_N = np.full(number, edge)
            else:
                start_N, stop_N = before_S[states_N], before_S[states_N + 1]
                place_N = start_N + random.random(len(states_N)) * (stop_N - start_N)
                edges_N = np.searchsorted(cumulative_E, place_N, side="right")
                # Rounding must not lead into the next state.
                edges_N = np.minimum(edges_N, bounds_S[states_N + 1] - 1)
            returns_N[playing_N] += weight * graph.rewards_E[edges_N]
            goes_on_N = graph.targets_E[edges_N] != ENDED
            playing_N = playing_N[goes_on_N]
            states_N = graph.targets_E[edges_N][goes_on_N]
            weight *= discount
            if len(playing_N) == 0:
                break
        return returns_N

    return draw
