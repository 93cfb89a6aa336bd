"""TextArena as a source: described without a game of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymEnvironmentSpec, GymSource, options_from
from longhaul_envs.extras import required
from longhaul_envs.textarena.prompt import PROMPT

__all__ = ["source"]


def source(options: Mapping[str, object]) -> GymSource:
    """TextArena under `options`, those of `TextArenaOptions`.

    Raises:
        ConfigError: If there is no such option or game, the game is for several players, or
            `textarena` is not installed.
    """
    required("textarena", "textarena")
    from longhaul_envs.textarena import tasks as task_list

    chosen = options_from(
        task_list.TextArenaOptions, options, environment_id=task_list.ENVIRONMENT_ID
    )
    description = EnvironmentDescription(
        id=task_list.ENVIRONMENT_ID,
        version=chosen.version,
        summary=f"TextArena's {chosen.game}",
        prompt=PROMPT,
        actions="what the game's rules ask for",
        episodes_per_process=16,
    )
    return GymSource(
        GymEnvironmentSpec(
            environment_id=task_list.ENVIRONMENT_ID,
            options=options,
            import_modules=("longhaul_envs.textarena",),
        ),
        describe=lambda: description,
        list_tasks=lambda split: task_list.tasks(split, chosen),
    )
