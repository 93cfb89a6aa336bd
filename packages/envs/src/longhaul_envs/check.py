"""What every environment must honour, as a function that its author can call.

`check_environment("mine/Riddles-v0")` returns problems in words, none if all is well. The
contract suite of this repository calls the same function on the packaged environments, so
what is asked of a user's environment is what is asked of ours.

Run as a program it prints the starts of tasks as JSON; the check does so in a second
process, under another hash seed, to see whether a task is the same task there.
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from gymnasium.spaces import Text
from gymnasium.utils.env_checker import check_env

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Observation, Split, Task
from longhaul_envs.capabilities import HasExpert
from longhaul_envs.pictures import is_observation_space
from longhaul_envs.play import Policy, TextEnvironment, act, expert_policy, play, start
from longhaul_envs.sources import environment_source

__all__ = ["check_environment", "starts"]

NONSENSE = ("", "   ", "xyzzy 12 ,", "\u00e4\u6f22\u0000\n<action>", "a" * 5000)
"""Actions that no environment understands."""

_OTHER_HASH_SEED = "4711"
_PROCESS_DEADLINE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is checked, and how thoroughly."""

    spec: GymEnvironmentSpec
    tasks: Mapping[Split, Sequence[Task]]
    """All of them."""
    sample: Sequence[Task]
    """Some of each split, which are played."""
    horizon: int


def check_environment(
    environment_id: str,
    *,
    options: Mapping[str, object] | None = None,
    import_modules: Sequence[str] = (),
    num_tasks: int = 4,
    horizon: int = 200,
) -> list[str]:
    """What is wrong with an environment, in words; an empty list if nothing was found.

    Args:
        environment_id: Gymnasium id.
        options: Keyword arguments of the environment.
        import_modules: Modules that register it.
        num_tasks: Tasks of each split that are played.
        horizon: Longest episode that is played, the expert's included.
    """
    spec = GymEnvironmentSpec(
        environment_id=environment_id,
        options=dict(options or {}),
        import_modules=("longhaul_envs.registry", *import_modules),
    )
    try:
        source = environment_source(spec)
        if not isinstance(source, GymSource):
            return [
                f"{environment_id!r} is served by {type(source).__name__}, which has no Gymnasium "
                "environment to check; check that one where it runs"
            ]
        description = source.describe()
        tasks = {split: source.tasks(split) for split in Split}
    except ConfigError as failure:
        return [str(failure)]
    sample = [task for split in Split for task in tasks[split][:num_tasks]]
    subject = _Subject(source.spec, tasks, sample, horizon)
    problems = list(_description_fits(description, tasks, spec=source.spec))
    for check in _CHECKS:
        try:
            with attributed_to(EnvironmentFailure, check.__name__.strip("_").replace("_", " ")):
                problems.extend(check(subject))
        except EnvironmentFailure as failure:
            problems.append(str(failure))
    return problems


def starts(spec: GymEnvironmentSpec, tasks: Sequence[Task]) -> list[list[str]]:
    """Text, anchor and admissible actions at the start of each task, in one environment."""
    environment = spec.make()
    try:
        return [_facts(start(environment, task)) for task in tasks]
    finally:
        environment.close()


def _facts(observation: Observation) -> list[str]:
    return [observation.text, observation.anchor, *(observation.admissible_actions or ())]


def _gymnasium_checker(subject: _Subject) -> Iterator[str]:
    environment = subject.spec.make()
    if not is_observation_space(environment.observation_space):
        yield (
            "observation_space must be gymnasium.spaces.Text or pictures.picture_space(), is "
            f"{environment.observation_space}"
        )
    if not isinstance(environment.action_space, Text):
        yield f"action_space must be gymnasium.spaces.Text, is {environment.action_space}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice for image and array environments
        check_env(environment.unwrapped, skip_render_check=True)


def _description_fits(
    description: EnvironmentDescription,
    tasks: Mapping[Split, Sequence[Task]],
    *,
    spec: GymEnvironmentSpec,
) -> Iterator[str]:
    if description.id != spec.environment_id:
        yield f"it describes itself as {description.id!r}"
    if description.episodes_per_process != spec.episodes_per_process():
        yield (
            f"it describes {description.episodes_per_process} episodes a process, and its class "
            f"declares {spec.episodes_per_process()}"
        )
    versions = {task.version for listed in tasks.values() for task in listed}
    if versions - {description.version}:
        yield (
            f"it describes version {description.version!r}, and its tasks are of {sorted(versions)}"
        )
    if EnvironmentDescription.from_json(description.to_json()) != description:
        yield "its description does not survive JSON"


def _task_lists(subject: _Subject) -> Iterator[str]:
    met: dict[str, Task] = {}
    for split in Split:
        for task in subject.tasks[split]:
            other = met.setdefault(task.task_id, task)
            if other is not task:
                yield f"task {task.task_id!r} is in {other.split.value} and in {split.value}"


def _disjoint_content(subject: _Subject) -> Iterator[str]:
    met: dict[str, Task] = {}
    every = [task for split in Split for task in subject.tasks[split]]
    for task, facts in zip(every, starts(subject.spec, every), strict=True):
        other = met.setdefault(json.dumps(facts), task)
        if other.split is not task.split:
            yield (
                f"tasks {other.task_id!r} ({other.split.value}) and {task.task_id!r} "
                f"({task.split.value}) start with the same observation; if they differ in "
                "something hidden, let `anchor_state` say so"
            )


def _same_start_in_any_order(subject: _Subject) -> Iterator[str]:
    forwards = starts(subject.spec, subject.sample)
    backwards = starts(subject.spec, subject.sample[::-1])[::-1]
    for task, first, second in zip(subject.sample, forwards, backwards, strict=True):
        if first != second:
            yield f"the start of task {task.task_id!r} depends on what was played before it"


def _same_start_in_another_process(subject: _Subject) -> Iterator[str]:
    request = [subject.spec.to_json(), [[t.seed, t.task_id, t.split] for t in subject.sample]]
    answer = subprocess.run(
        [sys.executable, "-m", "longhaul_envs.check"],
        input=json.dumps(request),
        env={
            **os.environ,
            "PYTHONHASHSEED": _OTHER_HASH_SEED,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=_PROCESS_DEADLINE_SECONDS,
        check=False,
    )
    if answer.returncode != 0:
        yield f"a second process cannot play it: {answer.stderr.strip()[-500:]}"
        return
    here, there = starts(subject.spec, subject.sample), json.loads(answer.stdout)
    for task, first, second in zip(subject.sample, here, there, strict=True):
        if first != second:
            yield f"the start of task {task.task_id!r} is another one in another process"


def _same_episode_twice(subject: _Subject) -> Iterator[str]:
    for task in subject.sample:
        first, second = (_play_in_fresh(subject, task, _take_in_turn()) for _ in range(2))
        if first != second:
            yield f"task {task.task_id!r} and the same actions give another episode"


def _same_episode_beside_another(subject: _Subject) -> Iterator[str]:
    """Only of a class that declares `episodes_per_process`."""
    if subject.spec.episodes_per_process() == 1:
        return
    for task, other in zip(subject.sample, subject.sample[::-1], strict=True):
        alone = _play_in_fresh(subject, task, _take_in_turn())
        with closing(subject.spec.make()) as neighbour:
            beside = _play_in_fresh(subject, task, _take_in_turn(beside=(neighbour, other)))
        if alone != beside:
            yield (
                f"task {task.task_id!r} is another episode where task {other.task_id!r} is played "
                "in the same process at once; episodes_per_process must be 1"
            )


def _admissible_actions_are_accepted(subject: _Subject) -> Iterator[str]:
    environment = subject.spec.make()
    for task in subject.sample:
        first = start(environment, task)
        for action in first.admissible_actions or ():
            start(environment, task)
            if not act(environment, action).action_accepted:
                yield f"task {task.task_id!r} calls {action!r} admissible and does not accept it"
        episode = play(environment, task, _take_in_turn(), horizon=subject.horizon)
        for action, result in zip(episode.actions, episode.results, strict=True):
            if not result.action_accepted:
                yield f"task {task.task_id!r} calls {action!r} admissible and does not accept it"


def _nonsense_is_handled(subject: _Subject) -> Iterator[str]:
    environment = subject.spec.make()
    for task in subject.sample:
        for action in NONSENSE:
            first = start(environment, task)
            result = act(environment, action)
            if first.admissible_actions is not None and result.action_accepted:
                yield f"task {task.task_id!r} accepts {action[:20]!r}, which it did not list"
            if result.success:
                yield f"task {task.task_id!r} is solved by {action[:20]!r}"


def _expert_solves(subject: _Subject) -> Iterator[str]:
    environment = subject.spec.make()
    if not isinstance(environment.unwrapped, HasExpert):
        return
    for task in subject.sample:
        episode = play(environment, task, expert_policy, horizon=subject.horizon)
        if not episode.success:
            yield f"the expert does not solve task {task.task_id!r} in {len(episode.results)} steps"
        admissible = episode.first_observation.admissible_actions
        if admissible is not None and episode.actions and episode.actions[0] not in admissible:
            yield f"the expert's {episode.actions[0]!r} in task {task.task_id!r} is not admissible"


_CHECKS: tuple[Callable[[_Subject], Iterator[str]], ...] = (
    _gymnasium_checker,
    _task_lists,
    _disjoint_content,
    _same_start_in_any_order,
    _same_start_in_another_process,
    _same_episode_twice,
    _same_episode_beside_another,
    _admissible_actions_are_accepted,
    _nonsense_is_handled,
    _expert_solves,
)


def _play_in_fresh(subject: _Subject, task: Task, policy: Policy) -> object:
    environment = subject.spec.make()
    try:
        return play(environment, task, policy, horizon=min(subject.horizon, 20))
    finally:
        environment.close()


def _take_in_turn(beside: tuple[TextEnvironment, Task] | None = None) -> Policy:
    """Takes the admissible action whose place in the list is the number of the step.

    Args:
        beside: An environment in which, before each action, the task is begun and a step made.
    """
    num_steps = 0

    def choose(_: object, observation: Observation) -> str | None:
        nonlocal num_steps
        if beside is not None:
            neighbour, task = beside
            for action in (start(neighbour, task).admissible_actions or NONSENSE[2:3])[:1]:
                act(neighbour, action)
        actions = observation.admissible_actions
        if actions is None:
            return NONSENSE[2]
        num_steps += 1
        return actions[num_steps % len(actions)] if actions else None

    return choose


def _answer() -> None:
    spec_json, rows = json.load(sys.stdin)
    spec = GymEnvironmentSpec.from_json(spec_json)
    tasks = [
        Task(
            environment=spec.environment_id,
            version="",
            data_hash="",
            task_id=task_id,
            seed=seed,
            split=Split(split),
        )
        for seed, task_id, split in rows
    ]
    json.dump(starts(spec, tasks), sys.stdout)


if __name__ == "__main__":
    _answer()
