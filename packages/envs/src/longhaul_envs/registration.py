"""How packaged environments are made known to Gymnasium."""

import gymnasium

__all__ = ["register"]


def register(environment_id: str, entry_point: str) -> None:
    """Make an environment known to Gymnasium, without the checker that it wraps around each one.

    The contract suite checks more, once and not in every episode.

    Args:
        environment_id: `longhaul/NAME-v0`.
        entry_point: `module:class`, imported when an environment is made.
    """
    gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
        environment_id, entry_point=entry_point, disable_env_checker=True
    )
