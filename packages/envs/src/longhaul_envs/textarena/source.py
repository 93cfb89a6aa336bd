"""TextArena as a source: described without a game of it."""

from collections.abc import Mapping

from longhaul_core.environment import EnvironmentDescription
from longhaul_core.gym import GymSource
from longhaul_envs.extras import required
from longhaul_envs.packaged import packaged_source
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

    described = packaged_source(
        task_list,
        task_list.TextArenaOptions,
        lambda chosen: EnvironmentDescription(
            id=task_list.ENVIRONMENT_ID,
            version=chosen.version,
            summary=f"TextArena's {chosen.game}",
            prompt=PROMPT,
            actions="what the game's rules ask for",
            episodes_per_process=16,
        ),
    )
    return described(options)
