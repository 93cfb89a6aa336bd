"""Exact values of a policy, by backward induction over the states of a task.

Time is part of it: with fewer steps left before the horizon, a state is worth less.

Shapes: S states, E edges (a state and an action), L = 0 ... horizon steps left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from longhaul_core.advantages.arguments import check_fraction
from longhaul_core.advantages.credit import FloatArray
from longhaul_core.errors import ConfigError
from longhaul_core.truth.state_graph import ENDED, INVALID, StateGraph
from longhaul_core.types import Observation, Picture, Trajectory

__all__ = ["ExactValues", "Policy", "exact_values", "tabulated", "true_advantages"]

Policy = Callable[[Observation], Mapping[str, float]]
"""The probability of each action in a state: of its admissible actions, and of `INVALID` for all
replies that none of them is read from. Together 1; an action that is left out has 0."""

_ROUNDING = 1e-6
"""How far the probabilities of a state may be from 1 in total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactValues:
    """V and Q of one policy in one task, in the environment's units."""

    graph: StateGraph
    values_LS: FloatArray
    """V: expected discounted return with L steps left. NaN where the state cannot be met with so
    many left."""
    action_values_LE: FloatArray
    """Q: the same once the edge's action is chosen. NaN as in V, and at L = 0."""

    def value(self, observation: Observation, *, steps_left: int) -> float:
        """V of a state.

        Args:
            observation: The state.
            steps_left: The episode's horizon less the step's index, 0 to `graph.horizon`.

        Raises:
            ConfigError: It is no state, or cannot be met with so many steps left.
        """
        state = self.graph.state(observation)
        self._refuse_unless_met(state, steps_left)
        return float(self.values_LS[steps_left, state])

    def advantage(self, observation: Observation, action: str, *, steps_left: int) -> float:
        """A = Q - V of an action in a state, with at least 1 step left.

        Raises:
            ConfigError: As `value`, or the action is none of the state's.
        """
        edge = self.graph.edge(observation, action)
        if steps_left < 1:
            raise ConfigError(f"an action needs at least 1 step, and {steps_left} are left")
        value = self.value(observation, steps_left=steps_left)
        return float(self.action_values_LE[steps_left, edge]) - value

    def _refuse_unless_met(self, state: int, steps_left: int) -> None:
        most = self.graph.horizon - int(self.graph.depths_S[state])
        if not 0 <= steps_left <= most:
            raise ConfigError(
                f"{steps_left} steps cannot be left in a state that is "
                f"{self.graph.depths_S[state]} steps from the start: with the horizon of "
                f"{self.graph.horizon} there are 0 to {most}; explore the task with the horizon "
                "that its episodes had"
            )


def exact_values(graph: StateGraph, probabilities_E: FloatArray, *, discount: float) -> ExactValues:
    r"""V and Q of a policy that reads the state alone.

        Q(s, l, a) = r(s, a) + discount * V(s', l - 1),   V(s, l) = sum_a p(a | s) Q(s, l, a)

    with V(s, 0) = 0, and 0 after an end: nothing is bootstrapped at the horizon, as in
    `returns_to_go`.

    Args:
        graph: Of the task.
        probabilities_E: Of each edge's action in its state; see `tabulated`.
        discount: Per step, in [0, 1].

    Raises:
        ValueError: `discount` lies outside [0, 1].

    Source:
        Sutton & Barto, Reinforcement Learning (2nd ed., 2018), eq. 4.3 and 4.4, for a finite
        horizon.
    """
    check_fraction(discount, name="discount")
    num_states, num_edges = len(graph.states), len(graph.actions)
    values_LS = np.full((graph.horizon + 1, num_states), np.nan)
    action_values_LE = np.full((graph.horizon + 1, num_edges), np.nan)
    values_LS[0] = 0.0
    most_left_S = graph.horizon - graph.depths_S
    for left in range(1, graph.horizon + 1):
        # ENDED is -1, so that what follows an end is read from the 0 behind the last state.
        following_E = np.append(values_LS[left - 1], 0.0)[graph.targets_E]
        action_values_E = graph.rewards_E + discount * following_E
        weighted_E = np.where(probabilities_E > 0.0, probabilities_E * action_values_E, 0.0)
        values_S = np.bincount(graph.sources_E, weights=weighted_E, minlength=num_states)
        met_S = left <= most_left_S
        values_LS[left, met_S] = values_S[met_S]
        met_E = met_S[graph.sources_E]
        action_values_LE[left, met_E] = action_values_E[met_E]
    return ExactValues(graph=graph, values_LS=values_LS, action_values_LE=action_values_LE)


def tabulated(graph: StateGraph, policy: Policy) -> FloatArray:
    """The probability of each edge's action in its state, shape (E,).

    Raises:
        ConfigError: The policy names an action that a state does not have, or its probabilities
            there are negative or not 1 together.
    """
    probabilities_E = np.zeros(len(graph.actions))
    for state in dict.fromkeys(int(source) for source in graph.sources_E):
        seen = graph.states[state]
        shares = policy(seen)
        for action, share in shares.items():
            probabilities_E[graph.edge(seen, action)] = share
        total = sum(shares.values())
        if not (abs(total - 1.0) <= _ROUNDING and min(shares.values()) >= 0.0):
            raise ConfigError(
                f"the policy's probabilities must be at least 0 and 1 together, got {dict(shares)} "
                f"({total:g} together) in state {seen.text!r}; what no action is read from "
                "belongs to INVALID"
            )
    return probabilities_E


def true_advantages(values: ExactValues, episode: Trajectory) -> FloatArray:
    """A = Q - V of each step of an episode of the values' policy: one number a step.

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
