"""Points24: four cards, and a formula of them that makes twenty-four."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/Points24-v0",
    entry_point="longhaul_envs.points24.environment:Points24",
    disable_env_checker=True,  # the contract suite checks it
)
