"""NumberLine: bring a number to a target by ones."""

import gymnasium

gymnasium.register(  # pyright: ignore[reportUnknownMemberType]  Gymnasium's `kwargs`
    "longhaul/NumberLine-v0",
    entry_point="longhaul_envs.number_line.environment:NumberLine",
    disable_env_checker=True,  # the contract suite checks it
)
