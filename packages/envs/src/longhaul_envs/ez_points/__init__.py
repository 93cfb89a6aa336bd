"""EZPoints: two cards, a plus or a times, and twelve."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/EZPoints-v0",
    entry_point="longhaul_envs.ez_points.environment:EZPoints",
    disable_env_checker=True,  # the contract suite checks it
)
