"""What can be scored without learning anything, so that a trained policy has a floor.

A success rate means little by itself: on small worlds a random policy, or one that always
names the same action, may solve a good part of the tasks. Training must beat the best of
these.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from longhaul_core.errors import ConfigError
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Task
from longhaul_envs.play import Episode, Policy, TextEnvironment, expert_policy, play
from longhaul_envs.task_lists import stable_seed

__all__ = ["BaselineScore", "baseline_scores", "score"]

_MAX_CONSTANT_ACTIONS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScore:
    """How a fixed policy did on a list of tasks, each played once."""

    policy: str
    """`random`, `constant: ACTION`, `position: first|last`, or `expert`."""
    success_rate: float
    mean_return: float
    mean_steps: float
    """Over all episodes, solved or not."""


def baseline_scores(
    spec: GymEnvironmentSpec, tasks: Sequence[Task], *, horizon: int, seed: int = 0
) -> list[BaselineScore]:
    """Scores of the random policy, the best constant ones, and the expert if there is one.

    The best constant action and the best position in the list of admissible actions are
    chosen on these very tasks, which flatters them: a floor to beat, not an estimate.

    Args:
        spec: The environment, which must name its admissible actions.
        tasks: At least one.
        horizon: Longest episode, in steps.
        seed: Of the random policy; it draws the same for a task whatever the others are.

    Raises:
        ConfigError: There is no task, or the environment names no admissible actions.
    """
    if not tasks:
        raise ConfigError("baselines need at least 1 task, got none")
    environment = spec.make()
    try:
        random_episodes = [
            play(environment, task, _random_policy(task, seed), horizon=horizon) for task in tasks
        ]
        scores = [score("random", random_episodes)]
        for name, policies in _constant_policies(random_episodes):
            candidates = [
                score(label, [play(environment, task, policy, horizon=horizon) for task in tasks])
                for label, policy in policies
            ]
            if not candidates:
                raise ConfigError(f"{spec.environment_id!r} names no admissible action: no {name}")
            scores.append(max(candidates, key=lambda s: (s.success_rate, s.mean_return)))
        experts = [play(environment, task, expert_policy, horizon=horizon) for task in tasks]
        if any(episode.actions for episode in experts):
            scores.append(score("expert", experts))
    finally:
        environment.close()
    return scores


def score(policy: str, episodes: Sequence[Episode]) -> BaselineScore:
    """The means over `episodes`, of which there must be at least one."""
    return BaselineScore(
        policy=policy,
        success_rate=sum(episode.success for episode in episodes) / len(episodes),
        mean_return=sum(episode.episode_return for episode in episodes) / len(episodes),
        mean_steps=sum(len(episode.results) for episode in episodes) / len(episodes),
    )


def _random_policy(task: Task, seed: int) -> Policy:
    random = Random(stable_seed(f"{seed} {task.task_id}"))

    def choose(environment: TextEnvironment, observation: Observation) -> str | None:
        del environment
        actions = observation.admissible_actions
        return random.choice(actions) if actions else None

    return choose


def _constant_policies(
    episodes: Iterable[Episode],
) -> list[tuple[str, list[tuple[str, Policy]]]]:
    """Candidates by kind: the actions met most often, and the ends of the list."""
    met: Counter[str] = Counter()
    for episode in episodes:
        seen = [episode.first_observation, *(result.observation for result in episode.results)]
        met.update({a for observation in seen for a in observation.admissible_actions or ()})
    common = sorted(met, key=lambda action: (-met[action], action))[:_MAX_CONSTANT_ACTIONS]
    constants = [(f"constant: {action}", _constant_policy(action)) for action in common]
    positions = [("position: first", _position_policy(0)), ("position: last", _position_policy(-1))]
    return [("constant action", constants), ("position", positions if met else [])]


def _constant_policy(action: str) -> Policy:
    return lambda environment, observation: action


def _position_policy(index: int) -> Policy:
    def choose(environment: TextEnvironment, observation: Observation) -> str | None:
        del environment
        actions = observation.admissible_actions
        return actions[index] if actions else None

    return choose
