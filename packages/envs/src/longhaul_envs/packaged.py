"""The source of a packaged environment: described and listed without an instance."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TypeVar

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.extras import required

__all__ = ["packaged_source"]

Chosen = TypeVar("Chosen")


def packaged_source(
    task_list: ModuleType,
    kind: type[Chosen],
    describe: Callable[[Chosen], EnvironmentDescription],
    *,
    lists: Sequence[str] = (),
    needs: Sequence[tuple[str, str]] = (),
) -> Callable[[Mapping[str, object]], GymSource]:
    """What an entry point of `longhaul.environments` names.

    Args:
        task_list: The environment's module of tasks, with `ENVIRONMENT_ID` and
            `tasks(split, options)`; its package registers the environment.
        kind: The dataclass of the environment's options, which checks them.
        describe: The environment under such options.
        lists: Options that may be one text in place of a list of it.
        needs: Modules that must be installed, each with the extra that brings it.

    Returns:
        A function of options, which raises `ConfigError` if there is no option of a name, a value
        is out of its range, or a module is not installed.
    """
    environment_id: str = task_list.ENVIRONMENT_ID
    package = task_list.__name__.rpartition(".")[0]

    def source(options: Mapping[str, object]) -> GymSource:
        options = {
            name: [value] if name in lists and isinstance(value, str) else value
            for name, value in options.items()
        }
        chosen = options_from(kind, options, environment_id=environment_id)
        for module, extra in needs:
            required(module, extra)
        description = describe(chosen)
        return GymSource(
            GymEnvironmentSpec(
                environment_id=environment_id, options=options, import_modules=(package,)
            ),
            describe=lambda: description,
            list_tasks=lambda split: task_list.tasks(split, chosen),
        )

    return source
