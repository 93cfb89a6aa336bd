"""What can be scored without learning anything, so that a trained policy has a floor.

A success rate means little by itself: on small worlds a random policy, or one that always
names the same action, may solve a good part of the tasks. Training must beat the best of
these.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random

from longhaul_core.errors import ConfigError
from longhaul_core.evaluation import success_rate_interval
from longhaul_core.gym import GymEnvironmentSpec
from longhaul_core.types import Observation, Task
from longhaul_envs.play import Episode, Policy, TextEnvironment, expert_policy, play
from longhaul_envs.task_lists import stable_seed

__all__ = [
    "BaselineScore",
    "ExpertScore",
    "baseline_scores",
    "drawn_over_families",
    "expert_score",
    "family_of",
    "score",
]

_MAX_CONSTANT_ACTIONS = 32
_MAX_FAMILIES = 100
"""Families of which each has a task in a draw; of more, the draw has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScore:
    """How a fixed policy did on a list of tasks, each played once."""

    policy: str
    """`random`, `constant: ACTION`, `position: first|last`, or `expert`."""
    success_rate: float
    success_interval: tuple[float, float]
    """Of the success rate of all tasks like these, with 95 % confidence (Wilson)."""
    mean_return: float
    mean_steps: float
    """Over all episodes, solved or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertScore:
    """How an environment's expert did beside a random policy, each task played once by both."""

    num_tasks: int
    num_families: int
    failures: tuple[str, ...]
    """Ids of the tasks that the expert did not solve."""
    expert: BaselineScore | None
    """None for an environment without an expert."""
    random: BaselineScore | None
    """None for an environment that names no admissible actions to choose from."""


def family_of(task: Task) -> str:
    """The kind of a task: its id without the last part, e.g. `GoToLocal` of `GoToLocal/00012`."""
    return task.task_id.rpartition("/")[0]


def drawn_over_families(tasks: Sequence[Task], *, num_tasks: int, seed: int = 0) -> list[Task]:
    """Tasks drawn by `seed`, the families taking turns.

    Args:
        tasks: A list; each is drawn at most once.
        num_tasks: How many; more where there are more families, up to 100, so that each has one.
        seed: Decides the order of the families, and which of their tasks are drawn.
    """
    families: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: stable_seed(f"{seed} {task.task_id}")):
        families.setdefault(family_of(task), []).append(task)
    num_families = len(families)
    wanted = max(num_tasks, num_families if num_families <= _MAX_FAMILIES else 0)
    drawn: list[Task] = []
    while len(drawn) < min(wanted, len(tasks)):
        drawn += [members.pop() for members in families.values() if members]
    return drawn[:wanted]


def expert_score(
    spec: GymEnvironmentSpec, tasks: Sequence[Task], *, horizon: int, seed: int = 0
) -> ExpertScore:
    """Scores of the expert and of a random policy on `tasks`, of which there is at least one.

    Args:
        spec: The environment.
        tasks: That are played.
        horizon: Longest episode, in steps.
        seed: Of the random policy.
    """
    with closing(spec.make()) as environment:
        experts = [play(environment, task, expert_policy, horizon=horizon) for task in tasks]
        randoms = [
            play(environment, task, _random_policy(task, seed), horizon=horizon) for task in tasks
        ]
    has_expert = any(episode.actions for episode in experts)
    lists_actions = any(
        episode.first_observation.admissible_actions is not None for episode in randoms
    )
    failures = [task for task, episode in zip(tasks, experts, strict=True) if not episode.success]
    return ExpertScore(
        num_tasks=len(tasks),
        num_families=len({family_of(task) for task in tasks}),
        failures=tuple(task.task_id for task in failures) if has_expert else (),
        expert=score("expert", experts) if has_expert else None,
        random=score("random", randoms) if lists_actions else None,
    )


def baseline_scores(
    spec: GymEnvironmentSpec,
    tasks: Sequence[Task],
    *,
    chosen_on: Sequence[Task],
    horizon: int,
    seed: int = 0,
) -> list[BaselineScore]:
    """Scores of the random policy, the best constant ones, and the expert if there is one.

    Args:
        spec: The environment, which must name its admissible actions.
        tasks: That are scored; at least one.
        chosen_on: Tasks on which the best constant action and the best position in the list of
            admissible actions are chosen; at least one. The tasks that are scored would
            flatter them.
        horizon: Longest episode, in steps.
        seed: Of the random policy; it draws the same for a task whatever the others are.

    Raises:
        ConfigError: There is no task, or the environment names no admissible actions.
    """
    if not tasks or not chosen_on:
        raise ConfigError("baselines need at least 1 task to score and 1 to choose on, got none")
    environment = spec.make()

    def played(policy: Policy, on: Sequence[Task]) -> list[Episode]:
        return [play(environment, task, policy, horizon=horizon) for task in on]

    def at_random(on: Sequence[Task]) -> list[Episode]:
        return [episode for task in on for episode in played(_random_policy(task, seed), [task])]

    try:
        scores = [score("random", at_random(tasks))]
        for name, policies in _constant_policies(at_random(chosen_on)):
            if not policies:
                raise ConfigError(f"{spec.environment_id!r} names no admissible action: no {name}")
            candidates = {label: score(label, played(p, chosen_on)) for label, p in policies}
            best, policy = max(
                policies,
                key=lambda p: (candidates[p[0]].success_rate, candidates[p[0]].mean_return),
            )
            scores.append(score(best, played(policy, tasks)))
        experts = played(expert_policy, tasks)
        if any(episode.actions for episode in experts):
            scores.append(score("expert", experts))
    finally:
        environment.close()
    return scores


def score(policy: str, episodes: Sequence[Episode]) -> BaselineScore:
    """The means over `episodes`, one of each task, of which there must be at least one."""
    interval = success_rate_interval(sum(episode.success for episode in episodes), len(episodes))
    return BaselineScore(
        policy=policy,
        success_rate=interval.estimate,
        success_interval=(interval.low, interval.high),
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
