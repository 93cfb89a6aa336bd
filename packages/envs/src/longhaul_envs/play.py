"""One episode played in a plain loop, without model, memory or threads.

For checks, baselines, experts and examples; training plays episodes by
`longhaul_core.rollout`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gymnasium

from longhaul_core.environment import StepResult
from longhaul_core.gym.convert import to_observation, to_step_result
from longhaul_core.types import Observation, Task
from longhaul_envs.capabilities import HasExpert

__all__ = ["Episode", "Policy", "TextEnvironment", "act", "expert_policy", "play", "start"]

TextEnvironment = gymnasium.Env[str, str]

Policy = Callable[[TextEnvironment, Observation], str | None]
"""Chooses an action; None gives the episode up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What was seen and done."""

    first_observation: Observation
    actions: tuple[str, ...]
    results: tuple[StepResult, ...]

    @property
    def success(self) -> bool:
        """Whether the last step solved the task."""
        return bool(self.results) and self.results[-1].success

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of rewards."""
        return sum(result.reward for result in self.results)


def start(environment: TextEnvironment, task: Task) -> Observation:
    """The first observation of `task`."""
    text, info = environment.reset(seed=task.seed, options={"task_id": task.task_id})
    return to_observation(text, info)


def act(environment: TextEnvironment, action: str) -> StepResult:
    """What `action` brings."""
    text, reward, terminated, truncated, info = environment.step(action)
    mapping: Mapping[str, object] = info
    return to_step_result(text, reward, terminated=terminated, truncated=truncated, info=mapping)


def play(environment: TextEnvironment, task: Task, policy: Policy, *, horizon: int) -> Episode:
    """Play `task` until it ends, the policy gives up, or `horizon` steps are made."""
    observation = first_observation = start(environment, task)
    actions: list[str] = []
    results: list[StepResult] = []
    while len(results) < horizon:
        action = policy(environment, observation)
        if action is None:
            break
        result = act(environment, action)
        actions.append(action)
        results.append(result)
        if result.terminated or result.truncated:
            break
        observation = result.observation
    return Episode(
        first_observation=first_observation, actions=tuple(actions), results=tuple(results)
    )


def expert_policy(environment: TextEnvironment, observation: Observation) -> str | None:
    """What the environment's own expert would do; None if it has none or gives up."""
    del observation
    bare = environment.unwrapped
    return bare.expert_action() if isinstance(bare, HasExpert) else None
