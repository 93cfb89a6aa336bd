"""What every environment must honour, as a function that its author can call.

`check_environment("mine/Riddles-v0")` returns problems in words, none if all is well. The
contract suite of this repository calls the same function on the packaged environments, so
what is asked of a user's environment is what is asked of ours.

A Gymnasium class is asked everything. Any other source, such as the client of a server, is
played by its protocol and asked all but what only a class has: spaces, an expert, pictures.
What has to repeat is what the environment declares (`EnvironmentDescription.determinism`).
"""

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from gymnasium.spaces import Text
from gymnasium.utils.env_checker import check_env

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.errors import ConfigError, EnvironmentFailure, attributed_to
from longhaul_core.gym import GymEnvironmentSpec, GymSource
from longhaul_core.types import Split, Task
from longhaul_envs.contract import anchors, episodes, rewards, tasks
from longhaul_envs.contract.subject import SETTLE_SECONDS, Subject, ignore
from longhaul_envs.pictures import is_observation_space
from longhaul_envs.players import opened
from longhaul_envs.sources import environment_source

__all__ = ["check_environment"]


def check_environment(  # noqa: PLR0913  how thoroughly it looks
    environment_id: str,
    *,
    options: Mapping[str, object] | None = None,
    import_modules: Sequence[str] = (),
    num_tasks: int = 4,
    num_starts: int | None = None,
    horizon: int = 200,
    settle_seconds: float = SETTLE_SECONDS,
    tell: Callable[[str], None] = ignore,
) -> list[str]:
    """What is wrong with an environment, in words; an empty list if nothing was found.

    Args:
        environment_id: Its id.
        options: Its options.
        import_modules: Modules that register it with Gymnasium.
        num_tasks: Tasks of each split that are played, spread over its list.
        num_starts: Tasks of each split whose first observations are compared with those of the
            other splits, spread over its list; None for all of them.
        horizon: Longest episode that is played, the expert's included.
        settle_seconds: Given to threads and processes that were told to end, before they count as
            left behind.
        tell: Is told what was covered, in words: of how many tasks each part of the goal was
            mistaken.
    """
    spec = GymEnvironmentSpec(
        environment_id=environment_id,
        options=dict(options or {}),
        import_modules=("longhaul_envs.registry", *import_modules),
    )
    try:
        source = environment_source(spec)
        description = source.describe()
        listed = {split: source.tasks(split) for split in Split}
    except ConfigError as failure:
        return [str(failure)]
    is_gym = isinstance(source, GymSource)
    subject = Subject(
        spec=source.spec if is_gym else spec,
        description=description,
        is_gym=is_gym,
        tasks=listed,
        starts=_spread(listed, num_starts),
        sample=_spread(listed, num_tasks),
        horizon=horizon,
        settle_seconds=settle_seconds,
        tell=tell,
    )
    problems: list[str] = []
    with _kept_warm(subject):
        for check in _CHECKS:
            try:
                with attributed_to(EnvironmentFailure, check.__name__.strip("_").replace("_", " ")):
                    problems.extend(check(subject))
            except EnvironmentFailure as failure:
                problems.append(str(failure))
    return problems


@contextmanager
def _kept_warm(subject: Subject) -> Generator[None]:
    """Keep an instance in play, if a process may have several, and with it all that they share.

    A browser or a virtual machine then starts once here, rather than for every check.
    """
    with ExitStack() as held:
        if subject.is_gym and subject.description.episodes_per_process > 1:
            with suppress(Exception):  # the checks say what fails
                held.enter_context(opened(subject.spec)).start(subject.sample[0])
        yield
        with suppress(Exception):
            held.close()


def _spread(listed: Mapping[Split, Sequence[Task]], most: int | None) -> list[Task]:
    """Up to `most` tasks of each split, evenly spread over its list."""
    chosen: list[Task] = []
    for split in Split:
        num_tasks = len(listed[split]) if most is None else min(most, len(listed[split]))
        chosen += [listed[split][n * len(listed[split]) // num_tasks] for n in range(num_tasks)]
    return chosen


def _gymnasium_checker(subject: Subject) -> Iterator[str]:
    if not subject.is_gym:
        return
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
    environment.close()


def _description_fits(subject: Subject) -> Iterator[str]:
    description, spec = subject.description, subject.spec
    if description.id != spec.environment_id:
        yield f"it describes itself as {description.id!r}"
    if subject.is_gym and description.episodes_per_process != spec.episodes_per_process():
        yield (
            f"it describes {description.episodes_per_process} episodes a process, and its class "
            f"declares {spec.episodes_per_process()}"
        )
    versions = {task.version for listed in subject.tasks.values() for task in listed}
    if versions - {description.version}:
        yield (
            f"it describes version {description.version!r}, and its tasks are of {sorted(versions)}"
        )
    if EnvironmentDescription.from_json(description.to_json()) != description:
        yield "its description does not survive JSON"


_CHECKS: tuple[Callable[[Subject], Iterator[str]], ...] = (
    _description_fits,
    _gymnasium_checker,
    tasks.task_lists,
    tasks.disjoint_content,
    tasks.same_start_in_any_order,
    episodes.same_in_another_process_which_close_frees,
    episodes.same_episode_twice,
    episodes.same_episode_beside_another,
    episodes.admissible_actions_are_accepted,
    episodes.nonsense_is_handled,
    episodes.expert_solves,
    rewards.mistakes_pay_less,
    episodes.pictures_are_as_described,
    episodes.pictures_show_the_state,
    anchors.anchors_name_the_state,
)
